// What one rendering may cost, and the meter that throws LimitExceeded when it costs more.
// Templates come with downloaded models and are not trusted: a loop, a recursion or a growing
// string must end in an error, in about a second, without filling memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace moeflux::jinja {

struct RenderLimits {
  // One step is a node evaluated, an item visited or 16 bytes of text handled; what allocates
  // counts for several.
  std::uint64_t max_steps = 20'000'000;
  std::size_t max_output_bytes = 64u << 20;   // of any one string, the result included
  std::size_t max_memory_bytes = 256u << 20;  // of all values alive at one time
  int max_depth = 600;                        // nested evaluations: expressions, blocks, macros
};

class Meter {
 public:
  explicit Meter(const RenderLimits& limits) : limits_(limits), steps_left_(limits.max_steps) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(std::uint64_t count = 1) {
    if (count > steps_left_) out_of_steps();
    steps_left_ -= count;
  }
  void text(std::size_t bytes) { step(1 + bytes / 16); }

  // Refuses a string of that many bytes before it is made.
  void check_string(std::uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes) string_too_long();
  }

  // Refuses a list of that many items before it is made.
  void check_items(std::uint64_t count, std::size_t item_bytes) const {
    if (count > (limits_.max_memory_bytes - memory_used_) / item_bytes) out_of_memory();
  }

  void take_memory(std::size_t bytes) {
    if (bytes > limits_.max_memory_bytes - memory_used_) out_of_memory();
    memory_used_ += bytes;
  }
  void give_memory(std::size_t bytes) noexcept { memory_used_ -= bytes; }

  void enter() {
    if (depth_ >= limits_.max_depth) too_deep();
    ++depth_;
  }
  void leave() noexcept { --depth_; }

 private:
  [[noreturn]] void out_of_steps() const {
    fail(Errc::LimitExceeded, "the template does more than {} steps of work", limits_.max_steps);
  }
  [[noreturn]] void out_of_memory() const {
    fail(Errc::LimitExceeded, "the values of the template need more than {} bytes of memory",
         limits_.max_memory_bytes);
  }
  [[noreturn]] void string_too_long() const {
    fail(Errc::LimitExceeded, "the template makes a text of more than {} bytes",
         limits_.max_output_bytes);
  }
  [[noreturn]] void too_deep() const {
    fail(Errc::LimitExceeded, "the template is evaluated more than {} levels deep",
         limits_.max_depth);
  }

  const RenderLimits limits_;
  std::uint64_t steps_left_;
  std::size_t memory_used_ = 0;
  int depth_ = 0;
};

// One level of recursion for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Meter& meter) : meter_(meter) { meter_.enter(); }
  ~DepthGuard() { meter_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Meter& meter_;
};

// Memory that a value holds; given back when the value goes.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(Meter& meter, std::size_t bytes) : meter_(&meter) { set(bytes); }
  MemoryCharge(MemoryCharge&& other) noexcept
      : meter_(other.meter_), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&&) = delete;
  ~MemoryCharge() {
    if (meter_ != nullptr) meter_->give_memory(bytes_);
  }

  std::size_t bytes() const { return bytes_; }
  void set(std::size_t bytes) {
    if (bytes > bytes_) {
      meter_->take_memory(bytes - bytes_);
    } else {
      meter_->give_memory(bytes_ - bytes);
    }
    bytes_ = bytes;
  }

 private:
  Meter* meter_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace moeflux::jinja
