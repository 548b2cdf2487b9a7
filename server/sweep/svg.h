// A small writer of SVG pictures, and the choice of axis ticks.
//
// Threads: values. Errors: none; text is escaped, and bytes that XML does not allow are replaced.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::sweep {

struct Point {
  double x = 0.0, y = 0.0;
};

class Svg {
 public:
  Svg(int width_px, int height_px);

  // `style` is a run of SVG attributes, e.g. R"(stroke="#888")".
  void line(Point from, Point to, std::string_view style);
  void polyline(const std::vector<Point>& points, std::string_view style);
  void circle(Point center, double radius, std::string_view style);
  void rect(Point corner, double width, double height, std::string_view style);
  void text(Point at, std::string_view content, std::string_view style);

  std::string finish() &&;

 private:
  std::string body_;
};

std::string escape_xml(std::string_view text);

// One axis: data values to pixels, with the ticks to draw. Linear from zero, or logarithmic with ticks 1, 2, 5.
class Axis {
 public:
  // `low` and `high` of the data, >= 0; logarithmic needs low > 0.
  Axis(double low, double high, bool logarithmic, double pixel_low, double pixel_high);

  double pixel(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  std::string tick_label(double value) const;  // 250; 1.5k where the axis goes to ten thousands

 private:
  double low_, high_;
  bool logarithmic_;
  double pixel_low_, pixel_high_;
  std::vector<double> ticks_;
};

}  // namespace assay::sweep
