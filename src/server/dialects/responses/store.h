// Responses that clients may come back to: to go on from them, to look at them, to stop them. They
// live in memory only, within an eighth of the memory of requests, and go when there is no room for
// newer ones: first those that nobody has gone on from for longest. Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/http/request_memory.h"
#include "server/service/generation_service.h"

namespace moeflux {

class ResponseStore {
 public:
  struct Limits {
    std::size_t count = 1000;
    std::uint64_t bytes = std::uint64_t{32} << 20;
  };
  ResponseStore() : ResponseStore(Limits()) {}
  explicit ResponseStore(const Limits& limits) : limits_(limits), most_bytes_(limits.bytes) {}

  // False: there is no room for it, and it is not kept. `input` are the items of its own request,
  // `previous` the id of the response it goes on from, or "".
  bool put(const std::string& id, Json response, Json input, const std::string& previous,
           const RequestMemoryPtr& memory);
  // The response as it is now. Nothing where it is not there any more, or was cancelled.
  void update(const std::string& id, Json response);
  // What cancel() calls, until the response has ended.
  void set_running(const std::string& id, std::shared_ptr<Generation> running);

  std::optional<Json> find(const std::string& id) const;
  std::optional<Json> input_of(const std::string& id) const;
  bool erase(const std::string& id);
  // Ends it: its status is "cancelled" from now on. Nothing where it is not there; the response as
  // it is where it had ended.
  std::optional<Json> cancel(const std::string& id);

  // All items that led to the response, and its own. Nothing where one of them is not there.
  std::optional<Json> conversation(const std::string& id) const;
  // An item of a response, or of an input, by its id.
  std::optional<Json> item(const std::string& id) const;

 private:
  struct Record {
    explicit Record(RequestMemoryPtr memory) : share(std::move(memory)) {}
    Json response, input;
    std::string previous = {};
    std::uint64_t used = 0;  // the larger, the later
    std::shared_ptr<Generation> running = {};
    MemoryShare share;
    std::uint64_t bytes = 0;
  };
  using RecordPtr = std::shared_ptr<Record>;
  RecordPtr find_record(const std::string& id) const;
  bool make_room(Record& record, std::uint64_t bytes);
  bool drop_oldest(const Record& but);
  std::vector<RecordPtr> chain(const std::string& id) const;  // newest first; empty: it is broken
  void forget(const std::string& id);

  const Limits limits_;
  std::uint64_t most_bytes_ = 0;  // limits_.bytes, or less where the memory of requests is small
  mutable std::mutex mutex_;
  std::map<std::string, RecordPtr> records_;
  std::uint64_t n_uses_ = 0;
  std::uint64_t bytes_ = 0;  // of all in records_
};

// The status of a response has changed for the last time.
bool has_ended(const Json& response);

}  // namespace moeflux
