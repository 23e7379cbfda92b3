// How far a conversion or a synthesis has come, and who tells the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace moeflux {

struct ConvertProgress {
  enum class Stage { Writing, Verifying };
  Stage stage = Stage::Writing;
  std::uint64_t bytes_done = 0;  // what an earlier run did counts
  std::uint64_t bytes_total = 0;
};
using ConvertProgressCall = std::function<void(const ConvertProgress&)>;

// Counts the bytes that several threads write, and tells the caller, one thread at a time.
class WriteMeter {
 public:
  WriteMeter(const ConvertProgressCall& tell, std::uint64_t done, std::uint64_t total)
      : tell_(tell), done_(done), total_(total) {
    add(0);
  }
  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (tell_) tell_({ConvertProgress::Stage::Writing, done_, total_});
  }

 private:
  const ConvertProgressCall& tell_;
  std::mutex mutex_;
  std::uint64_t done_, total_;
};

}  // namespace moeflux
