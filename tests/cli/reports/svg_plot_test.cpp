#include "cli/reports/svg_plot.h"

#include <cmath>

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

LinePlot small_plot() {
  return {"A < B & C",
          "sub",
          "x",
          "y",
          {{"one", {{0, 0}, {50, 80}, {100, 100}}, false}, {"two", {{0, 10}, {100, 90}}, true}}};
}

TEST(SvgPlotTest, DrawsLinesAxesAndLegend) {
  const std::string svg = draw_svg(small_plot());
  EXPECT_EQ(svg.compare(0, 5, "<svg "), 0);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_NE(svg.find("A &lt; B &amp; C</text>"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle "), 5);
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2);  // the dashed line and its mark in the legend
  for (const char* label :
       {">0</text>", ">20</text>", ">100</text>", ">one</text>", ">two</text>"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
  // (50, 80) of axes that end at 100 x 100.
  EXPECT_NE(svg.find("L327.0 131.2"), std::string::npos) << svg;
}

TEST(SvgPlotTest, LeavesOutWhatIsNoNumber) {
  LinePlot plot = small_plot();
  plot.lines[0].points[1].y = std::nan("");
  const std::string svg = draw_svg(plot);
  EXPECT_EQ(count(svg, "<circle "), 4);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(count(draw_svg({}), "<svg "), 1);
}

}  // namespace
}  // namespace moeflux::cli
