// Line plots as SVG: a small picture for documents, readable on light and dark pages, with nothing
// in it but text and paths.
#pragma once

#include <string>
#include <vector>

namespace moeflux::cli {

struct LinePlot {
  struct Point {
    double x = 0, y = 0;
  };
  struct Line {
    std::string name;
    std::vector<Point> points;  // by ascending x
    bool dashed = false;        // for a bound rather than a result
  };
  std::string title, subtitle, x_label, y_label;
  std::vector<Line> lines;  // in the order of the legend
};

// Both axes begin at 0 or below the least value and end at a round number. NaN is not drawn.
std::string draw_svg(const LinePlot& plot);

}  // namespace moeflux::cli
