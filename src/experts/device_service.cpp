// What the streamer does for a device that looks experts up by itself: it brings what the device
// asks for, in rounds where more is needed than there are slots.
//
// The table is written only while the device waits for an answer, or when nothing is enqueued. So
// evictions happen only then; in between, reads fill empty slots at most, and what has landed is
// published later.
#include <algorithm>

#include "experts/streamer.h"

namespace moeflux {

// While a request is served all slots that it lists are pinned.
bool ExpertStreamer::may_evict() const {
  return service_.has_value() || backend_.done(backend_.mark());
}

void ExpertStreamer::publish() {
  for (const int slot : unpublished_) device_->publish(slot);
  unpublished_.clear();
}

void ExpertStreamer::poll() {
  if (n_inside_ > 0) return;
  if (!device_) return keep_reading();
  const Inside inside(*this);
  if (reader_->n_moving() > 0 || !finished_.empty()) {
    reap(/*block=*/false);
    pump();
    note_progress();
  }
  if (device_->has_failed()) {
    device_->answer();  // a request from before it could see that
  } else if (device_->has_request()) {
    if (!service_) begin_service();
    if (service_) go_on_serving();
  } else if (!unpublished_.empty() && may_evict()) {
    publish();
  }
}

void ExpertStreamer::begin_service() {
  DeviceTable::Request request;
  try {
    request = device_->request();
  } catch (const Error& error) {
    return fail_device(error);
  }
  const int bank = request.bank;
  Service& s = service_.emplace();
  s.bank = bank;
  s.start = std::chrono::steady_clock::now();
  const bool counts = request.round == 0;
  if (counts) {
    ++n_served_[static_cast<std::size_t>(bank)];
    cache_.begin_request(bank);
  }
  for (const std::int32_t expert : request.needed) {
    const ExpertKey key{bank, expert};
    const int slot = cache_.find(key);
    if (slot < 0) {
      s.waiting.push_back(expert);
    } else {
      if (counts) count_hit(bank, slot);
      cache_.pin(slot);
      s.pinned.push_back(slot);
      if (device_->has(key)) {
        s.had_some = true;
      } else if (cache_.state(slot) == ExpertCache::State::Ready) {
        s.brought_one = true;
      } else {
        s.reading.push_back(slot);
        s.joined.push_back(slot);
      }
    }
    if (counts) cache_.use(key);
  }
  publish();
}

void ExpertStreamer::go_on_serving() {
  Service& s = *service_;
  std::optional<Error> error;
  std::erase_if(s.reading, [&](int slot) {
    const ExpertCache::State state = cache_.state(slot);
    if (state == ExpertCache::State::InFlight) return false;
    if (state == ExpertCache::State::Ready) {
      s.brought_one = true;
      return true;
    }
    // A read that nobody waited for when it was started is tried again.
    if (std::find(s.joined.begin(), s.joined.end(), slot) != s.joined.end()) {
      s.waiting.push_back(cache_.key(slot).expert);
      std::erase(s.joined, slot);
    } else {
      error = transfer(slot).why;
    }
    std::erase(s.pinned, slot);
    cache_.unpin(slot);
    return true;
  });
  if (error) return fail_device(*error);
  publish();
  while (!s.waiting.empty() && claim({s.bank, s.waiting.front()}, Purpose::Demand)) {
    const ExpertKey key{s.bank, s.waiting.front()};
    s.waiting.pop_front();
    const int slot = cache_.find(key);
    cache_.pin(slot);
    s.pinned.push_back(slot);
    s.reading.push_back(slot);
    count_miss(key);
  }
  pump();
  if (s.brought_one) return end_service();
  if (!s.reading.empty()) return;
  // No slot: they hold what the device computes with now, or what is on its way for others.
  if (s.had_some) return end_service();
  if (reader_->n_moving() == 0 && finished_.empty()) {
    fail_device({Errc::OutOfMemory, "no slot of the expert cache is free for a device's request"});
  }
}

void ExpertStreamer::end_service() {
  for (const int slot : service_->pinned) cache_.unpin(slot);
  bank_stats(service_->bank).wait_ns += nanoseconds_since(service_->start);
  service_.reset();
  device_->answer();
}

void ExpertStreamer::fail_device(const Error& error) {
  if (!failure_) failure_ = error;
  if (service_) {
    for (const int slot : service_->pinned) cache_.unpin(slot);
    for (const int slot : demanded_) cache_.fail(slot);
    demanded_.clear();
    service_.reset();
  }
  device_->fail();
}

void ExpertStreamer::rethrow_failure() {
  if (!failure_) return;
  device_->forget_failure();
  throw *std::exchange(failure_, std::nullopt);
}

void ExpertStreamer::note_uses(int bank, std::span<const std::int32_t> ids) {
  used_.assign(ids.begin(), ids.end());
  std::sort(used_.begin(), used_.end());
  used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
  for (RequestObserver* observer : observers_) observer->on_request(bank, used_);
  int& n_served = n_served_[static_cast<std::size_t>(bank)];
  if (n_served > 0) {  // counted when it was served
    --n_served;
    return;
  }
  cache_.begin_request(bank);
  for (const std::int32_t expert : used_) {
    const ExpertKey key{bank, expert};
    const int slot = cache_.find(key);
    if (slot >= 0) {
      count_hit(bank, slot);
      cache_.pin(slot);
    }
    cache_.use(key);
    if (slot >= 0) cache_.unpin(slot);
  }
}

}  // namespace moeflux
