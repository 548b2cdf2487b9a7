#include "server/ops/meter_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <vector>

#include "server/ops/exposition.h"

namespace assay {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<const char*, kNumMeterPhases> kPhases{"decode", "prefill"};

// One (layer, head), or all of them, with its labels as text.
struct Series {
  HeadSnapshot values;
  std::string labels;                                    // {layer, head, model_name}
  std::array<std::string, kNumMeterPhases> phase_labels;  // {layer, head, phase, model_name}
};

Series make_series(const HeadSnapshot& values, const std::string& layer, const std::string& head, const std::string& model) {
  Series series{values, labels_text({{"layer", layer}, {"head", head}, {"model_name", model}}), {}};
  for (int phase = 0; phase < kNumMeterPhases; ++phase) {
    series.phase_labels[phase] =
        labels_text({{"layer", layer}, {"head", head}, {"phase", kPhases[phase]}, {"model_name", model}});
  }
  return series;
}

std::vector<Series> head_series(const MeterSnapshot& snapshot, const std::string& model) {
  std::vector<Series> all;
  all.reserve(snapshot.heads.size());
  for (size_t i = 0; i < snapshot.heads.size(); ++i) {
    all.push_back(make_series(snapshot.heads[i], std::to_string(i / snapshot.num_heads),
                              std::to_string(i % snapshot.num_heads), model));
  }
  return all;
}

HeadSnapshot over_all_heads(const MeterSnapshot& snapshot) {
  HeadSnapshot sum;
  for (const HeadSnapshot& head : snapshot.heads) {
    sum.worst = std::max(sum.worst, head.worst);
    sum.recent_worst = std::max(sum.recent_worst, head.recent_worst);
    for (int phase = 0; phase < kNumMeterPhases; ++phase) {
      sum.cells[phase].metered += head.cells[phase].metered;
      sum.cells[phase].over_tau += head.cells[phase].over_tau;
      sum.cells[phase].saturated += head.cells[phase].saturated;
      sum.cells[phase].overflow += head.cells[phase].overflow;
    }
  }
  return sum;
}

class Writer {
 public:
  Writer(std::vector<Series> series, bool openmetrics) : series_(std::move(series)), openmetrics_(openmetrics) {}

  void counter(const char* name, const char* help, int64_t HeadCells::*count) {
    out_ += family_header(name, help, MetricType::Counter, openmetrics_);
    for (const Series& series : series_) {
      for (int phase = 0; phase < kNumMeterPhases; ++phase) {
        fmt::format_to(std::back_inserter(out_), "{}{} {}\n", name, series.phase_labels[phase],
                       series.values.cells[phase].*count);
      }
    }
  }

  void gauge(const char* name, const char* help, double HeadSnapshot::*value) {
    out_ += family_header(name, help, MetricType::Gauge, openmetrics_);
    for (const Series& series : series_) {
      fmt::format_to(std::back_inserter(out_), "{}{} {}\n", name, series.labels, number_text(series.values.*value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  std::vector<Series> series_;
  bool openmetrics_;
  std::string out_;
};

MetricFamily histogram(const char* name, const char* help, const std::vector<double>& edges,
                       const std::array<MeterHistogram, kNumMeterPhases>& phases, const std::string& model) {
  MetricFamily family{name, help, MetricType::Histogram, {}};
  for (int phase = 0; phase < kNumMeterPhases; ++phase) {
    ClientMetric metric;
    metric.label = {{"phase", kPhases[phase]}, {"model_name", model}};
    uint64_t cumulative = 0;
    for (size_t i = 0; i < phases[phase].counts.size(); ++i) {
      cumulative += static_cast<uint64_t>(phases[phase].counts[i]);
      metric.histogram.bucket.push_back(
          {cumulative, i < edges.size() ? edges[i] : std::numeric_limits<double>::infinity()});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = phases[phase].sum;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::string meter_text(const MeterSnapshot& snapshot, bool per_head, const std::string& model_name, bool openmetrics) {
  if (snapshot.heads.empty()) return "";
  Writer writer(per_head ? head_series(snapshot, model_name)
                         : std::vector<Series>{make_series(over_all_heads(snapshot), "all", "all", model_name)},
                openmetrics);
  writer.counter("assay_meter_cells_total", "Metered cells: one query of one head", &HeadCells::metered);
  writer.counter("assay_meter_over_tau_total", "Cells whose bound is above the threshold", &HeadCells::over_tau);
  writer.counter("assay_meter_saturated_total", "Cells whose raw value is 1 or more: nothing is certified there",
                 &HeadCells::saturated);
  writer.counter("assay_meter_overflow_total", "Cells whose raw value left the arithmetic; in no mean",
                 &HeadCells::overflow);
  writer.gauge("assay_meter_worst", "Largest bound of total variation since start", &HeadSnapshot::worst);
  writer.gauge("assay_meter_recent_worst", "Largest bound of total variation in the last minute",
               &HeadSnapshot::recent_worst);
  const MetricFamily tv = histogram("assay_meter_tv", "Bounds of total variation, all heads", snapshot.bucket_edges,
                                    snapshot.tv, model_name);
  const MetricFamily value = histogram("assay_value_bound", "Bounds of the value error relative to the largest value row",
                                       snapshot.bucket_edges, snapshot.value, model_name);
  return writer.take() + exposition_text({tv, value}, "", false);
}

}  // namespace assay
