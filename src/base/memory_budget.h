// The ceiling on memory, and who holds how much of it. Every large allocation reserves here first,
// so that the sum can never exceed what the user allows. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace moeflux {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t ceiling_bytes) : ceiling_(ceiling_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Held for as long as the object lives.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(MemoryBudget* budget, std::string tag, std::uint64_t bytes)
        : budget_(budget), tag_(std::move(tag)), bytes_(bytes) {}
    ~Reservation() { release(); }
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    std::uint64_t bytes() const { return bytes_; }

   private:
    void release();
    MemoryBudget* budget_ = nullptr;
    std::string tag_;
    std::uint64_t bytes_ = 0;
  };

  // Throws Error(OutOfMemory) with both numbers when the ceiling would be exceeded.
  Reservation reserve(const std::string& tag, std::uint64_t bytes);

  std::uint64_t ceiling() const { return ceiling_; }
  std::uint64_t available() const;
  std::map<std::string, std::uint64_t> by_tag() const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t ceiling_;
  std::uint64_t used_ = 0;
  std::map<std::string, std::uint64_t> by_tag_;
};

std::string format_bytes(std::uint64_t bytes);  // "6.0 GiB"
// The same, rounded up: what is said to be needed is enough when it is given.
std::string format_needed_bytes(std::uint64_t bytes);

}  // namespace moeflux
