#include "server/dialects/responses/store.h"

#include <algorithm>
#include <vector>

namespace moeflux {
namespace {

std::uint64_t bytes_of(const Json& response, const Json& input) {
  return json_bytes(response) + json_bytes(input) + 256;
}

const Json* find_item(const Json& items, const std::string& id) {
  for (const Json& item : items) {
    if (item.value("id", "") == id) return &item;
  }
  return nullptr;
}

}  // namespace

bool has_ended(const Json& response) {
  const std::string status = response.value("status", "");
  return status != "queued" && status != "in_progress";
}

ResponseStore::RecordPtr ResponseStore::find_record(const std::string& id) const {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : found->second;
}

void ResponseStore::forget(const std::string& id) {
  const auto found = records_.find(id);
  if (found == records_.end()) return;
  bytes_ -= found->second->bytes;
  records_.erase(found);
}

bool ResponseStore::drop_oldest(const Record& but) {
  auto oldest = records_.end();
  for (auto each = records_.begin(); each != records_.end(); ++each) {
    if (each->second.get() == &but || !has_ended(each->second->response)) continue;
    if (oldest == records_.end() || each->second->used < oldest->second->used) oldest = each;
  }
  if (oldest == records_.end()) return false;
  bytes_ -= oldest->second->bytes;
  records_.erase(oldest);
  return true;
}

std::vector<ResponseStore::RecordPtr> ResponseStore::chain(const std::string& id) const {
  std::vector<RecordPtr> records;
  for (std::string at = id; !at.empty(); at = records.back()->previous) {
    const RecordPtr record = find_record(at);
    if (record == nullptr || records.size() > records_.size()) return {};
    records.push_back(record);
  }
  return records;
}

bool ResponseStore::make_room(Record& record, std::uint64_t bytes) {
  if (bytes > most_bytes_) return false;
  const bool is_new = record.response.is_null();
  while (bytes_ + bytes > most_bytes_ || (is_new && records_.size() >= limits_.count)) {
    if (!drop_oldest(record)) return false;
  }
  while (!record.share.grow_to(bytes)) {
    if (!drop_oldest(record)) return false;
  }
  return true;
}

bool ResponseStore::put(const std::string& id, Json response, Json input,
                        const std::string& previous, const RequestMemoryPtr& memory) {
  const std::lock_guard lock(mutex_);
  if (memory) most_bytes_ = std::min(limits_.bytes, memory->bytes() / 8);
  const auto record = std::make_shared<Record>(memory);
  record->previous = previous;
  std::vector<RecordPtr> before = chain(previous);  // all of it is in use
  for (auto each = before.rbegin(); each != before.rend(); ++each) (*each)->used = ++n_uses_;
  record->used = ++n_uses_;
  const std::uint64_t bytes = bytes_of(response, input);
  if (!make_room(*record, bytes)) return false;
  record->response = std::move(response);
  record->input = std::move(input);
  record->bytes = bytes;
  bytes_ += bytes;
  records_[id] = record;
  return true;
}

void ResponseStore::update(const std::string& id, Json response) {
  std::shared_ptr<Generation> ended;  // goes without the lock
  const std::lock_guard lock(mutex_);
  const RecordPtr record = find_record(id);
  if (record == nullptr) return;
  const bool was_cancelled = record->response.value("status", "") == "cancelled";
  if (has_ended(response)) ended = std::move(record->running);
  if (was_cancelled) return;
  const std::uint64_t bytes = bytes_of(response, record->input);
  bytes_ -= record->bytes;
  record->bytes = 0;
  if (!make_room(*record, bytes)) {
    records_.erase(id);
    return;
  }
  record->response = std::move(response);
  record->bytes = bytes;
  bytes_ += bytes;
}

void ResponseStore::set_running(const std::string& id, std::shared_ptr<Generation> running) {
  {
    const std::lock_guard lock(mutex_);
    const RecordPtr record = find_record(id);
    if (record != nullptr && !has_ended(record->response)) {
      record->running = std::move(running);
      return;
    }
    if (record != nullptr && record->response.value("status", "") != "cancelled") return;
  }
  running->cancel();  // it was cancelled, or forgotten, before this
}

std::optional<Json> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RecordPtr record = find_record(id);
  return record == nullptr ? std::nullopt : std::optional(record->response);
}

std::optional<Json> ResponseStore::input_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const RecordPtr record = find_record(id);
  return record == nullptr ? std::nullopt : std::optional(record->input);
}

bool ResponseStore::erase(const std::string& id) {
  std::shared_ptr<Generation> running;
  {
    const std::lock_guard lock(mutex_);
    const RecordPtr record = find_record(id);
    if (record == nullptr) return false;
    running = std::move(record->running);
    forget(id);
  }
  if (running) running->cancel();
  return true;
}

std::optional<Json> ResponseStore::cancel(const std::string& id) {
  std::shared_ptr<Generation> running;
  std::optional<Json> response;
  {
    const std::lock_guard lock(mutex_);
    const RecordPtr record = find_record(id);
    if (record == nullptr) return std::nullopt;
    if (!has_ended(record->response)) record->response["status"] = "cancelled";
    running = record->running;
    response = record->response;
  }
  if (running) running->cancel();
  return response;
}

std::optional<Json> ResponseStore::conversation(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const std::vector<RecordPtr> records = chain(id);
  if (records.empty()) return std::nullopt;
  Json items = Json::array();
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    for (const Json& item : (*record)->input) items.push_back(item);
    for (const Json& item : (*record)->response.at("output")) items.push_back(item);
  }
  return items;
}

std::optional<Json> ResponseStore::item(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, record] : records_) {
    if (const Json* found = find_item(record->response.at("output"), id)) return *found;
    if (const Json* found = find_item(record->input, id)) return *found;
  }
  return std::nullopt;
}

}  // namespace moeflux
