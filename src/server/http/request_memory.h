// The part of the memory ceiling that is for requests. Everything whose size a client chooses is
// reserved here before it is allocated: connections, bodies, their way to tokens, answers that wait
// to be taken. So all of it together never takes more than was planned beside the engine. Any
// thread.
//
// It is not a MemoryBudget: a request's share grows while the request is read, may wait for others
// to shrink theirs, and is refused with an HTTP status; a budget's reservations have fixed sizes,
// tags for the report, and fail at once with Error(OutOfMemory).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/json.h"

namespace moeflux {

class RequestMemory {
 public:
  explicit RequestMemory(std::uint64_t bytes) : bytes_(bytes) {}
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // The rest is always left for small requests.
  std::uint64_t most_for_one() const { return bytes_ / 4 * 3; }
  std::uint64_t used() const;

 private:
  friend class MemoryShare;
  bool take(std::uint64_t bytes, std::chrono::milliseconds patience);
  void release(std::uint64_t bytes);

  const std::uint64_t bytes_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::uint64_t used_ = 0;
};

// How long a worker may wait until other requests are parsed and rendered.
inline constexpr std::chrono::milliseconds kMemoryPatience{3000};

using RequestMemoryPtr = std::shared_ptr<RequestMemory>;

// The reservation of one holder. It must outlive the memory that was reserved.
class MemoryShare {
 public:
  MemoryShare() = default;  // nothing is counted
  explicit MemoryShare(RequestMemoryPtr memory) : memory_(std::move(memory)) {}
  ~MemoryShare() { shrink_to(0); }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

  // Throws HttpError: 413 with both numbers where one request may never have so much, 503 where
  // others hold the memory and did not release it in time.
  void grow(std::uint64_t bytes, std::chrono::milliseconds patience = {});
  bool grow_to(std::uint64_t bytes);  // false, and nothing changed: there is no room
  void shrink_to(std::uint64_t bytes);
  std::uint64_t bytes() const { return bytes_; }

 private:
  RequestMemoryPtr memory_;
  std::uint64_t bytes_ = 0;
};

// ---- the price of a JSON body, known before any of it is parsed
//
// A few bytes of JSON can become a hundred times as many: three of an empty list are 60 when they
// are parsed, more when a template has printed them. So values are counted, not only bytes.

// Measured with the worst bodies and rounded up: the parsed value, its copies on the way to a
// prompt, the output of a template, and tokenizing that.
inline constexpr std::uint64_t kPriceOfValue = 640;
inline constexpr std::uint64_t kPriceOfTextByte = 64;

// Bytes that a body takes on its whole way to tokens. Text that is no JSON has a price, too;
// parsing it fails before the price is paid.
std::uint64_t body_price(std::string_view text);

// Bytes that a parsed value holds.
std::uint64_t json_bytes(const Json& value);

// ---- the plan

// How much of a ceiling a server plans besides the engine.
struct ServerMemory {
  std::uint64_t request_bytes = 0;
  std::uint64_t grammar_bytes = 0;  // compiled ones, of each model

  std::uint64_t total() const { return request_bytes + grammar_bytes; }
};
// Enough for a prompt that fills the context, also where that is much of a small ceiling.
ServerMemory server_memory(std::uint64_t ceiling, std::int64_t context_length);

// Makes the allocator return freed memory to the system instead of keeping it for the thread that
// used it. Call it before threads are started.
void keep_heap_small();

}  // namespace moeflux
