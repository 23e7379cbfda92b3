#include "base/memory_budget.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace moeflux {

MemoryBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      tag_(std::move(other.tag_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Reservation& MemoryBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    tag_ = std::move(other.tag_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryBudget::Reservation::release() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->used_ -= bytes_;
  budget_->by_tag_[tag_] -= bytes_;
  budget_ = nullptr;
}

MemoryBudget::Reservation MemoryBudget::reserve(const std::string& tag, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > ceiling_ - used_) {
    fail(Errc::OutOfMemory, "{} needs {}, but only {} of the {} allowed are left", tag,
         format_bytes(bytes), format_bytes(ceiling_ - used_), format_bytes(ceiling_));
  }
  used_ += bytes;
  by_tag_[tag] += bytes;
  return {this, tag, bytes};
}

std::uint64_t MemoryBudget::available() const {
  const std::lock_guard lock(mutex_);
  return ceiling_ - used_;
}

std::map<std::string, std::uint64_t> MemoryBudget::by_tag() const {
  const std::lock_guard lock(mutex_);
  return by_tag_;
}

namespace {

struct Amount {
  double value;
  const char* unit;
};

Amount in_units(std::uint64_t bytes) {
  Amount amount{static_cast<double>(bytes), "B"};
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (amount.value < 1024) break;
    amount = {amount.value / 1024, next};
  }
  return amount;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const Amount amount = in_units(bytes);
  return fmt::format("{:.1f} {}", amount.value, amount.unit);
}

std::string format_needed_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const Amount amount = in_units(bytes);
  return fmt::format("{:.1f} {}", std::ceil(amount.value * 10) / 10, amount.unit);
}

}  // namespace moeflux
