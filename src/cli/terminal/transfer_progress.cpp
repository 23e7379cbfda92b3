#include "cli/terminal/transfer_progress.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/memory_budget.h"

namespace moeflux::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLineInterval = 10s;
constexpr double kMinSeconds = 0.5;  // a speed measured over less means nothing

}  // namespace

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

}  // namespace moeflux::cli
