#include "server/sweep/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace assay::sweep {
namespace {

constexpr int kWantedTicks = 6;
constexpr double kMargin = 1.06;    // room beyond the largest value
constexpr double kLogMargin = 1.3;  // and before the smallest, where the axis does not start at zero

// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
double nice_step(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return escaped;
}

Svg::Svg(int width_px, int height_px) {
  body_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n",
      width_px, height_px);
}

void Svg::line(Point from, Point to, std::string_view style) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", from.x, from.y, to.x,
                       to.y, style);
}

void Svg::polyline(const std::vector<Point>& points, std::string_view style) {
  body_ += "<polyline fill=\"none\" points=\"";
  for (const Point& point : points) body_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  body_ += fmt::format("\" {}/>\n", style);
}

void Svg::circle(Point center, double radius, std::string_view style) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" {}/>\n", center.x, center.y, radius, style);
}

void Svg::rect(Point corner, double width, double height, std::string_view style) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}/>\n", corner.x, corner.y,
                       width, height, style);
}

void Svg::text(Point at, std::string_view content, std::string_view style) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at.x, at.y, style, escape_xml(content));
}

std::string Svg::finish() && {
  return std::move(body_) + "</svg>\n";
}

Axis::Axis(double low, double high, bool logarithmic, double pixel_low, double pixel_high)
    : low_(logarithmic ? low / kLogMargin : 0.0),
      high_(high * kMargin),
      logarithmic_(logarithmic),
      pixel_low_(pixel_low),
      pixel_high_(pixel_high) {
  if (!(high_ > low_)) high_ = low_ + 1.0;
  if (!logarithmic_) {
    const double step = nice_step((high_ - low_) / kWantedTicks);
    for (int i = 0; i * step <= high_ * (1.0 + 1e-9); ++i) ticks_.push_back(i * step);
    return;
  }
  for (double power = std::pow(10.0, std::floor(std::log10(low_))); power <= high_; power *= 10.0) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= low_ && factor * power <= high_) ticks_.push_back(factor * power);
    }
  }
}

double Axis::pixel(double value) const {
  const double share =
      logarithmic_ ? std::log(std::max(value, low_) / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return pixel_low_ + share * (pixel_high_ - pixel_low_);
}

std::string Axis::tick_label(double value) const {
  const double largest = ticks_.empty() ? 0.0 : ticks_.back();
  if (largest >= 1e7 && value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (largest >= 1e4 && value >= 1e3) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::round(value * 1e6) / 1e6);
}

}  // namespace assay::sweep
