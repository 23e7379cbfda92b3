#include "cli/terminal/progress.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kDelay = 100ms;  // a step that is over sooner needs no bar
constexpr auto kInterval = 66ms;
constexpr int kMaxBarWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string label, bool shown) : label_(std::move(label)), shown_(shown) {}

ProgressBar::~ProgressBar() {
  if (drawn_) write_stderr("\r\033[K");
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total, const std::string& detail) {
  if (!shown_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < kDelay || (drawn_ && now - last_ < kInterval && done < total)) return;
  last_ = now;
  drawn_ = true;

  const double share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const std::string tail = fmt::format(" {:3.0f} %  {}", 100 * share, detail);
  const int room = terminal_width() - static_cast<int>(label_.size() + tail.size()) - 4;
  std::string bar;
  if (room >= 10) {
    const int width = std::min(room, kMaxBarWidth);
    const int filled = static_cast<int>(share * width);
    bar = fmt::format(" [{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                      std::string(static_cast<std::size_t>(width - filled), '.'));
  }
  write_stderr(fmt::format("\r{}{}{}\033[K", label_, bar, tail));
}

}  // namespace moeflux::cli
