#include "cli/terminal/progress.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/memory_budget.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDelay = 100ms;  // a step that is over sooner needs no bar
constexpr auto kInterval = 66ms;
constexpr int kMaxBarWidth = 40;
constexpr auto kLineInterval = 10s;
constexpr double kMinSeconds = 0.5;  // a speed measured over less means nothing

}  // namespace

ProgressBar::ProgressBar(std::string label, bool shown) : label_(std::move(label)), shown_(shown) {}

ProgressBar::~ProgressBar() {
  if (drawn_) write_stderr("\r\033[K");
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total, const std::string& detail) {
  if (!shown_ || total == 0) return;
  const auto now = Clock::now();
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

std::string format_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::min(seconds, 1e9) + 0.5);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

TransferProgress::TransferProgress(std::string label, const GeneralOptions& general)
    : label_(std::move(label)), general_(general), bar_(label_, general.show_progress()) {}

void TransferProgress::update(std::uint64_t done, std::uint64_t total) {
  const auto now = Clock::now();
  if (!first_) {
    first_ = done;
    start_ = last_line_ = now;
  }
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double moved = static_cast<double>(done - *first_);
  std::string detail = fmt::format("{} of {}", format_bytes(done), format_bytes(total));
  if (seconds >= kMinSeconds && moved > 0) {
    const double left = static_cast<double>(total - done) * seconds / moved;
    detail +=
        fmt::format(", {}/s, {} left", format_bytes(static_cast<std::uint64_t>(moved / seconds)),
                    format_duration(left));
  }
  bar_.update(done, total, detail);
  if (!general_.show_progress() && now - last_line_ >= kLineInterval) {
    last_line_ = now;
    general_.note(fmt::format("{}: {}", label_, detail));
  }
}

void PromptProgress::update(std::int64_t done, std::int64_t total) {
  if (!shown_ || done >= total) return end();
  const auto now = Clock::now();
  if (!first_) {
    first_ = done;
    start_ = now;
    bar_.emplace("reading the prompt", shown_);
  }
  if (!bar_) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto n_read = static_cast<double>(done - *first_);
  std::string detail = fmt::format("{} of {} tokens", done, total);
  if (seconds >= kMinSeconds && n_read > 0) {
    detail += fmt::format(", {:.0f}/s, {} left", n_read / seconds,
                          format_duration(static_cast<double>(total - done) * seconds / n_read));
  }
  bar_->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total), detail);
}

void StageProgress::update(const ConvertProgress& progress) {
  throw_if_interrupted();
  if (!bar_ || progress.stage != stage_) {
    stage_ = progress.stage;
    bar_.reset();  // the old one is removed before the new one appears
    const bool writing = stage_ == ConvertProgress::Stage::Writing;
    bar_ = std::make_unique<TransferProgress>(writing ? "writing" : "verifying", general_);
  }
  bar_->update(progress.bytes_done, progress.bytes_total);
}

}  // namespace moeflux::cli
