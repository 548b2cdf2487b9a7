#include "server/sweep/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "server/sweep/svg.h"

namespace assay::sweep {
namespace {

constexpr int kWidthPx = 1180;
constexpr double kPanelTopPx = 104, kPanelHeightPx = 360, kPanelWidthPx = 480;
constexpr double kFirstPanelLeftPx = 84, kSecondPanelLeftPx = 652;
constexpr double kLegendRowPx = 24;
constexpr double kLogRatio = 20.0;  // a wider spread of the data gets a logarithmic axis
// Distinguishable for colour-blind readers and in print.
constexpr const char* kColors[] = {"#0067b1", "#d9541e", "#1a8f5a", "#9b3fa5",
                                   "#b58900", "#5b6470", "#c2185b", "#00838f"};

using Value = std::function<double(const FrontierPoint&)>;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = 0.0;
};

Range range_of(const std::vector<FrontierRun>& runs, const Value& value) {
  Range range;
  for (const FrontierRun& run : runs) {
    for (const FrontierPoint& point : run.points) {
      const double v = value(point);
      if (!std::isfinite(v) || v <= 0.0) continue;
      range.low = std::min(range.low, v);
      range.high = std::max(range.high, v);
    }
  }
  if (range.high == 0.0) range = {1.0, 1.0};
  return range;
}

struct Panel {
  double left = 0.0;
  std::string title, x_title;
  Value x;
};

// A curve in pixels, and the level of each of its points.
struct Curve {
  std::vector<Point> points;
  std::vector<const FrontierPoint*> levels;
  std::string color;
};

Curve place_curve(const FrontierRun& run, const Value& x, const Axis& x_axis, const Axis& y_axis, const char* color) {
  Curve curve{{}, {}, color};
  for (const FrontierPoint& level : run.points) {
    if (!std::isfinite(x(level)) || level.output_tokens_per_s <= 0.0) continue;
    curve.points.push_back({x_axis.pixel(x(level)), y_axis.pixel(level.output_tokens_per_s)});
    curve.levels.push_back(&level);
  }
  return curve;
}

void draw_curve(Svg* svg, const Curve& curve) {
  svg->polyline(curve.points,
                fmt::format("stroke=\"{}\" stroke-width=\"2.25\" stroke-linejoin=\"round\"", curve.color));
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const char* fill = curve.levels[i]->client_bound ? "#ffffff" : curve.color.c_str();
    svg->circle(curve.points[i], 4.25, fmt::format("fill=\"{}\" stroke=\"{}\" stroke-width=\"2\"", fill, curve.color));
  }
}

// Each point's level beside it, on the side away from the line that leads to it; left out where another label is too
// close.
void draw_levels(Svg* svg, const Curve& curve, std::vector<Point>* taken) {
  constexpr double kClearXPx = 26, kClearYPx = 13;
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const Point at = curve.points[i];
    const bool falling = i > 0 && curve.points[i - 1].y < at.y;
    const Point label{falling ? at.x + 8 : at.x - 8, at.y - 9};
    const bool crowded = std::any_of(taken->begin(), taken->end(), [&](const Point& other) {
      return std::fabs(other.x - label.x) < kClearXPx && std::fabs(other.y - label.y) < kClearYPx;
    });
    if (crowded) continue;
    taken->push_back(label);
    svg->text(label, curve.levels[i]->level,
              fmt::format("font-size=\"11\" text-anchor=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"3\" "
                          "paint-order=\"stroke\"",
                          falling ? "start" : "end", curve.color));
  }
}

void draw_grid(Svg* svg, const Panel& panel, const Axis& x_axis, const Axis& y_axis) {
  const double bottom = kPanelTopPx + kPanelHeightPx, right = panel.left + kPanelWidthPx;
  for (const double tick : y_axis.ticks()) {
    const double y = y_axis.pixel(tick);
    svg->line({panel.left, y}, {right, y}, R"(stroke="#e4e7eb")");
    svg->text({panel.left - 9, y + 4}, y_axis.tick_label(tick), R"(font-size="12" text-anchor="end" fill="#52606d")");
  }
  for (const double tick : x_axis.ticks()) {
    const double x = x_axis.pixel(tick);
    svg->line({x, kPanelTopPx}, {x, bottom}, R"(stroke="#eef0f3")");
    svg->line({x, bottom}, {x, bottom + 5}, R"(stroke="#7b8794")");
    svg->text({x, bottom + 20}, x_axis.tick_label(tick), R"(font-size="12" text-anchor="middle" fill="#52606d")");
  }
  svg->line({panel.left, bottom}, {right, bottom}, R"(stroke="#7b8794")");
  svg->line({panel.left, kPanelTopPx}, {panel.left, bottom}, R"(stroke="#7b8794")");
}

void draw_panel(Svg* svg, const std::vector<FrontierRun>& runs, const Panel& panel) {
  const double bottom = kPanelTopPx + kPanelHeightPx, right = panel.left + kPanelWidthPx;
  const Range x_range = range_of(runs, panel.x);
  const Range y_range = range_of(runs, [](const FrontierPoint& p) { return p.output_tokens_per_s; });
  const bool logarithmic = x_range.high / x_range.low > kLogRatio;
  const Axis x_axis(x_range.low, x_range.high, logarithmic, panel.left, right);
  const Axis y_axis(0.0, y_range.high, false, bottom, kPanelTopPx);
  draw_grid(svg, panel, x_axis, y_axis);
  svg->text({panel.left, kPanelTopPx - 14}, panel.title, R"(font-size="14" font-weight="600" fill="#1f2933")");
  svg->text({panel.left + kPanelWidthPx / 2, bottom + 42}, panel.x_title + (logarithmic ? ", logarithmic" : ""),
            R"(font-size="13" text-anchor="middle" fill="#323f4b")");
  svg->text({right, kPanelTopPx - 14}, "better: up and to the left",
            R"(font-size="11" text-anchor="end" fill="#7b8794")");
  std::vector<Curve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    curves.push_back(place_curve(runs[i], panel.x, x_axis, y_axis, kColors[i % std::size(kColors)]));
    draw_curve(svg, curves.back());
  }
  std::vector<Point> taken;
  for (const Curve& curve : curves) draw_levels(svg, curve, &taken);
}

void draw_legend(Svg* svg, const std::vector<FrontierRun>& runs, double top) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const double y = top + kLegendRowPx * static_cast<double>(i);
    const char* color = kColors[i % std::size(kColors)];
    svg->line({kFirstPanelLeftPx, y}, {kFirstPanelLeftPx + 30, y},
              fmt::format("stroke=\"{}\" stroke-width=\"2.25\"", color));
    svg->circle({kFirstPanelLeftPx + 15, y}, 4.25, fmt::format("fill=\"{}\"", color));
    svg->text({kFirstPanelLeftPx + 40, y + 4.5},
              runs[i].label + (runs[i].caption.empty() ? "" : "  \xC2\xB7  " + runs[i].caption),
              R"(font-size="13" fill="#323f4b")");
  }
  const bool any_hollow = std::any_of(runs.begin(), runs.end(), [](const FrontierRun& run) {
    return std::any_of(run.points.begin(), run.points.end(), [](const FrontierPoint& p) { return p.client_bound; });
  });
  if (!any_hollow) return;
  const double y = top + kLegendRowPx * static_cast<double>(runs.size());
  svg->circle({kFirstPanelLeftPx + 15, y}, 4.25, R"(fill="#ffffff" stroke="#7b8794" stroke-width="2")");
  svg->text({kFirstPanelLeftPx + 40, y + 4.5}, "hollow: the client was the bottleneck, the server may do better",
            R"(font-size="12" fill="#7b8794")");
}

double field(const nlohmann::ordered_json& level, const char* group, const char* name) {
  const auto& value = level.at(group).at(name);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

FrontierPoint read_point(const nlohmann::ordered_json& level) {
  FrontierPoint point;
  point.level = level.at("level").get<std::string>();
  point.output_tokens_per_s = field(level, "throughput", "output_tokens_per_s");
  point.tpot_ms = field(level, "tpot_ms", "median");
  point.ttft_ms = field(level, "ttft_ms", "median");
  point.tpot_p99_ms = field(level, "tpot_ms", "p99");
  point.ttft_p99_ms = field(level, "ttft_ms", "p99");
  point.client_bound = !level.at("client").at("bottleneck").get<std::string>().empty();
  return point;
}

}  // namespace

absl::StatusOr<FrontierRun> frontier_run(const nlohmann::ordered_json& results) {
  FrontierRun run;
  try {
    run.label = results.at("label").get<std::string>();
    const auto& config = results.at("config");
    run.caption = fmt::format("{}, {} in / {} out tokens", results.at("model").get<std::string>(),
                              config.at("input_tokens").get<int64_t>(), config.at("output_tokens").get<int64_t>());
    for (const auto& level : results.at("levels")) run.points.push_back(read_point(level));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(std::string("not the results of a sweep: ") + error.what());
  }
  return run;
}

std::string draw_frontier(const std::vector<FrontierRun>& runs) {
  const double legend_top = kPanelTopPx + kPanelHeightPx + 76;
  const double height = legend_top + kLegendRowPx * static_cast<double>(runs.size() + 1);
  Svg svg(kWidthPx, static_cast<int>(height));
  svg.rect({0, 0}, kWidthPx, height, R"(fill="#ffffff")");
  svg.text({kFirstPanelLeftPx, 36}, "Throughput against latency", R"(font-size="20" font-weight="700" fill="#1f2933")");
  svg.text({kFirstPanelLeftPx, 58},
           "Output tokens per second in the steady window; each point is a level of load, marked with "
           "its concurrency or request rate",
           R"(font-size="13" fill="#52606d")");
  draw_panel(&svg, runs,
             {kFirstPanelLeftPx, "output tok/s by time per output token", "median time per output token (ms)",
              [](const FrontierPoint& p) { return p.tpot_ms; }});
  draw_panel(&svg, runs,
             {kSecondPanelLeftPx, "output tok/s by time to first token", "median time to first token (ms)",
              [](const FrontierPoint& p) { return p.ttft_ms; }});
  draw_legend(&svg, runs, legend_top);
  return std::move(svg).finish();
}

}  // namespace assay::sweep
