#include "cli/reports/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

constexpr double kWidth = 760, kHeight = 460;
constexpr double kLeft = 64, kRight = 590, kTop = 64, kBottom = 400;

// Distinct for most colour-blind readers, and of middling lightness, so that they show on white and
// on black.
constexpr std::array<std::string_view, 8> kColors{"#2f7fd1", "#d9730d", "#2a9d5c", "#c0486f",
                                                  "#8a63c9", "#9a7b2f", "#3aa0a0", "#7d858f"};

constexpr std::string_view kStyle =
    "<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#57606a}"
    ".title{font-size:16px;font-weight:600;fill:#24292f}.grid{stroke:#8b949e;stroke-opacity:.3}"
    ".axis{stroke:#8b949e}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){text{fill:#a4adb7}.title{fill:#e6edf3}}</style>\n";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : "";
    out += entity;
    if (entity.empty() && static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

struct Axis {
  double low = 0, high = 1, step = 1;
  double from = 0, to = 1;  // in pixels

  double place(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Steps of 1, 2 or 5 times a power of ten, about `n` of them.
Axis make_axis(double low, double high, int n, double from, double to) {
  if (!(high > low)) high = low + 1;
  const double rough = (high - low) / n;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double each : {1.0, 2.0, 5.0}) {
    if (each * power >= rough * 0.999) {
      step = each * power;
      break;
    }
  }
  Axis axis{std::floor(low / step) * step, std::ceil(high / step - 1e-9) * step, step, from, to};
  if (!(axis.high > axis.low)) axis.high = axis.low + step;
  return axis;
}

Axis axis_of(const LinePlot& plot, double LinePlot::Point::*member, double from, double to) {
  double low = 0, high = 0;
  for (const LinePlot::Line& line : plot.lines) {
    for (const LinePlot::Point& point : line.points) {
      if (!std::isfinite(point.*member)) continue;
      low = std::min(low, point.*member);
      high = std::max(high, point.*member);
    }
  }
  return make_axis(low, high, 6, from, to);
}

std::string grid(const Axis& x, const Axis& y) {
  std::string out;
  const auto line = [&](double x1, double y1, double x2, double y2, std::string_view kind) {
    out += fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", kind, x1, y1,
                       x2, y2);
  };
  const auto label = [&](double px, double py, std::string_view anchor, double value) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{:g}</text>\n", px, py,
                       anchor, value);
  };
  for (int i = 0; y.low + i * y.step <= y.high * (1 + 1e-9); ++i) {
    const double value = y.low + i * y.step;
    line(kLeft, y.place(value), kRight, y.place(value), i == 0 ? "axis" : "grid");
    label(kLeft - 8, y.place(value) + 4, "end", value);
  }
  for (int i = 0; x.low + i * x.step <= x.high * (1 + 1e-9); ++i) {
    const double value = x.low + i * x.step;
    line(x.place(value), kTop, x.place(value), kBottom, i == 0 ? "axis" : "grid");
    label(x.place(value), kBottom + 20, "middle", value);
  }
  return out;
}

std::string curve(const LinePlot::Line& line, const Axis& x, const Axis& y,
                  std::string_view color) {
  std::string path, dots;
  for (const LinePlot::Point& point : line.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    const double px = x.place(point.x), py = y.place(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    dots +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", px, py, color);
  }
  if (path.empty()) return "";
  return fmt::format("<path class=\"line\" stroke=\"{}\"{} d=\"{}\"/>\n{}", color,
                     line.dashed ? " stroke-dasharray=\"6 4\"" : "", path, dots);
}

std::string legend(const LinePlot& plot) {
  std::string out;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const double y = kTop + 12 + 24 * static_cast<double>(i);
    out += fmt::format("<path class=\"line\" stroke=\"{}\"{} d=\"M{:.0f} {:.0f}h26\"/>\n",
                       kColors[i % kColors.size()],
                       plot.lines[i].dashed ? " stroke-dasharray=\"6 4\"" : "", kRight + 20, y);
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", kRight + 54, y + 4,
                       escaped(plot.lines[i].name));
  }
  return out;
}

}  // namespace

std::string draw_svg(const LinePlot& plot) {
  const Axis x = axis_of(plot, &LinePlot::Point::x, kLeft, kRight);
  const Axis y = axis_of(plot, &LinePlot::Point::y, kBottom, kTop);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n",
      kWidth, kHeight, escaped(plot.title));
  out += kStyle;
  out += fmt::format("<text class=\"title\" x=\"{:.0f}\" y=\"26\">{}</text>\n", kLeft,
                     escaped(plot.title));
  out += fmt::format("<text x=\"{:.0f}\" y=\"46\">{}</text>\n", kLeft, escaped(plot.subtitle));
  out += grid(x, y);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kRight) / 2, kBottom + 44, escaped(plot.x_label));
  out += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kTop + kBottom) / 2, escaped(plot.y_label));
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    out += curve(plot.lines[i], x, y, kColors[i % kColors.size()]);
  }
  return out + legend(plot) + "</svg>\n";
}

}  // namespace moeflux::cli
