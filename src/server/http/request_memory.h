// The part of the memory ceiling that is for requests. Whatever a client chooses the size of is
// reserved here before it is allocated: connections, bodies, what is made of them until there are
// tokens, answers that wait to be taken. So all of it together never takes more than was planned
// beside the engine. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace moeflux {

class RequestMemory {
 public:
  explicit RequestMemory(std::uint64_t bytes) : bytes_(bytes) {}
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // Some is always left for those who ask for little.
  std::uint64_t most_for_one() const { return bytes_ / 4 * 3; }
  std::uint64_t used() const;

 private:
  friend class MemoryShare;
  bool take(std::uint64_t bytes, std::chrono::milliseconds patience);
  void give_back(std::uint64_t bytes);

  const std::uint64_t bytes_;
  mutable std::mutex mutex_;
  std::condition_variable given_back_;
  std::uint64_t used_ = 0;
};

// For others to be parsed and rendered, which takes a moment. Workers may wait so long.
inline constexpr std::chrono::milliseconds kMemoryPatience{3000};

using RequestMemoryPtr = std::shared_ptr<RequestMemory>;

// What one holder has of it, until it goes: it must outlive what it was reserved for.
class MemoryShare {
 public:
  MemoryShare() = default;  // nothing is counted
  explicit MemoryShare(RequestMemoryPtr memory) : memory_(std::move(memory)) {}
  ~MemoryShare() { shrink_to(0); }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

  // Throws HttpError: 413 with both numbers where one request may never have so much, 503 where
  // others hold it and did not give it back in time.
  void grow(std::uint64_t bytes, std::chrono::milliseconds patience = {});
  bool grow_to(std::uint64_t bytes);  // false, and nothing changed: there is no room
  void shrink_to(std::uint64_t bytes);
  std::uint64_t bytes() const { return bytes_; }

 private:
  RequestMemoryPtr memory_;
  std::uint64_t bytes_ = 0;
};

// How much of a ceiling a server plans for what is not the engine's.
struct ServerMemory {
  std::uint64_t request_bytes = 0;
  std::uint64_t grammar_bytes = 0;  // compiled ones, of each model

  std::uint64_t total() const { return request_bytes + grammar_bytes; }
};
// Enough for a prompt that fills the context, also where that is much of a small ceiling.
ServerMemory server_memory(std::uint64_t ceiling, std::int64_t context_length);

// Has freed memory go back to the system instead of being kept by whichever thread used it. Before
// threads are started.
void keep_heap_small();

}  // namespace moeflux
