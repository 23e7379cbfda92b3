#include "experts/streamer.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "io/make_reader.h"

namespace moeflux {
namespace {

constexpr std::size_t kTagsAtOnce = 64;

}  // namespace

ExpertStreamer::ExpertStreamer(ExpertStore store, Backend& backend, MemoryBudget& budget,
                               Options options)
    : store_(std::move(store)),
      backend_(backend),
      reservation_(budget.reserve("expert cache", store_.bytes_of(store_.slots_for(
                                                      options.cache_bytes, options.min_slots)))),
      cache_(store_, backend,
             {.kind = MemoryKind::Device,
              .slots = store_.slots_for(options.cache_bytes, options.min_slots),
              .policy = options.policy}),
      reads_at_once_(std::max(options.reads_at_once, 1)),
      min_slots_(options.min_slots),
      reader_(make_expert_reader(budget, options)),
      transfers_(cache_.n_slots()),
      tags_(kTagsAtOnce),
      n_served_(static_cast<std::size_t>(store_.n_banks())) {
  const auto n_threads = static_cast<std::uint64_t>(backend.n_threads());
  reader_reservation_ =
      budget.reserve("reader", drive_->info().memory_bytes + n_threads * store_.repack_bytes());
  stats_.banks.resize(static_cast<std::size_t>(store_.n_banks()));
  if (backend.drives_experts() && cache_.n_slots() > 0 &&
      DeviceTable::can_describe(store_, cache_)) {
    device_.emplace(store_, cache_, backend);
    cache_.set_on_release([this](ExpertKey key) { device_->withdraw(key); });
  }
}

std::unique_ptr<ExpertReader> ExpertStreamer::make_expert_reader(MemoryBudget& budget,
                                                                 Options& options) {
  auto files =
      options.reader ? std::move(options.reader) : make_reader(store_.source().disk_paths());
  drive_ = files.get();
  const auto drive = [&](std::size_t n_tags) {
    return std::make_unique<DriveReader>(store_, std::move(files), reads_at_once_, n_tags, stats_);
  };
  if (cache_.n_slots() == 0 || cache_.buffer().host() != nullptr) return drive(cache_.n_slots());
  const std::uint64_t least = store_.floor_bytes(tier_slots(reads_at_once_));
  const SlotCounts slots = store_.slots_for(std::max(options.host_bytes, least));
  tier_reservation_ = budget.reserve("expert host tier", store_.bytes_of(slots));
  std::size_t n_slots = 0;
  for (const std::size_t n : slots) n_slots += n;
  auto tier = std::make_unique<TierReader>(
      store_, backend_,
      ExpertCache::Options{.kind = MemoryKind::Pinned, .slots = slots, .policy = options.policy},
      drive(n_slots), cache_.n_slots(), stats_);
  host_tier_ = &tier->cache();
  return tier;
}

ExpertStreamer::~ExpertStreamer() {
  const Inside inside(*this);
  if (device_) {  // whatever it asks for, the answer is no
    device_->fail();
    backend_.wait_for_all();
  }
  reader_->cancel();
  reader_.reset();  // waits for what moves into the cache's memory
}

void ExpertStreamer::learn(const UsageProfile& profile) {
  for (int id = 0; id < store_.ids().n_total(); ++id) {
    const ExpertKey key = store_.ids().key(id);
    cache_.remember(key, profile.rate(key.bank, key.expert));
  }
}

void ExpertStreamer::begin_step(int n_tokens) {
  ++stats_.steps;
  stats_.tokens += static_cast<std::uint64_t>(n_tokens);
  std::fill(n_served_.begin(), n_served_.end(), 0);
  for (RequestObserver* observer : observers_) observer->on_step(n_tokens);
}

void ExpertStreamer::set_capacity(std::uint64_t bytes) {
  const Inside inside(*this);
  if (device_) {
    backend_.wait_for_all();
    publish();
  }
  cache_.set_capacity(
      store_.slots_for(std::max(bytes, store_.floor_bytes(min_slots_)), min_slots_));
}

bool ExpertStreamer::claim(ExpertKey key, Purpose purpose) {
  if (device_ && !cache_.has_room(key.bank)) {
    if (!may_evict()) return false;
    publish();
  }
  const Inside inside(*this);
  const int slot = cache_.claim(key);
  if (slot < 0) return false;
  transfer(slot) = {.purpose = purpose};
  if (purpose == Purpose::Demand) {
    transfer(slot).start = std::chrono::steady_clock::now();
    demanded_.push_back(slot);
  } else {
    stats_.prefetched += purpose == Purpose::Prefetch;
    stats_.warmed += purpose == Purpose::Warm;
    start(slot);
  }
  return true;
}

void ExpertStreamer::start(int slot) {
  const Inside inside(*this);
  reader_->submit(cache_.key(slot), cache_.bytes_of(slot), slot);
}

bool ExpertStreamer::pump_demanded() {
  const auto next = std::find_if(demanded_.begin(), demanded_.end(),
                                 [&](int slot) { return reader_->is_free_for(cache_.key(slot)); });
  if (next == demanded_.end()) return false;
  const int slot = *next;
  demanded_.erase(next);
  start(slot);
  return true;
}

// What a request waits for goes first, then prefetches. Whatever the reader does not need to be
// busy stays here, where what turns out to be urgent passes it and what turns out to be wrong is
// dropped.
void ExpertStreamer::pump() {
  while (true) {
    if (!demanded_.empty()) {
      if (!pump_demanded()) return;
    } else if (!prefetches_.empty()) {
      const ExpertKey key = prefetches_.front();
      if (!reader_->is_free_for(key)) return;
      if (cache_.find(key) < 0 && !claim(key, Purpose::Prefetch)) return;
      prefetches_.pop_front();
    } else if (!to_warm_.empty()) {
      const ExpertKey key = to_warm_.front();
      if (!reader_->is_free_for(key)) return;
      to_warm_.pop_front();
      if (!cache_.has_room()) to_warm_.clear();
      if (cache_.has_room(key.bank) && cache_.find(key) < 0) claim(key, Purpose::Warm);
    } else {
      return;
    }
  }
}

void ExpertStreamer::keep_reading() {
  if (n_inside_ > 0 || reader_->n_moving() == 0) return;
  collect(/*block=*/false);
  pump();
}

void ExpertStreamer::prefetch(int bank, std::span<const std::int32_t> experts) {
  prefetches_.clear();
  for (const std::int32_t expert : experts) prefetches_.push_back({bank, expert});
  pump();
}

void ExpertStreamer::warm(std::vector<ExpertKey> experts) {
  to_warm_.assign(experts.begin(), experts.end());
  pump();
}

void ExpertStreamer::finish_warming(const std::function<void()>& progress) {
  while (!to_warm_.empty() || reader_->n_moving() > 0 || !finished_.empty()) {
    pump();
    reap(/*block=*/true);
    if (progress) progress();
  }
}

void ExpertStreamer::collect(bool block) {
  const Inside inside(*this);
  const std::size_t n = reader_->wait(tags_, block);
  for (std::size_t i = 0; i < n; ++i) {
    Transfer& moved = transfer(tags_[i]);
    if (moved.start) moved.read_ns = nanoseconds_since(*moved.start);
    finished_.push_back(tags_[i]);
  }
}

void ExpertStreamer::reap(bool block) {
  collect(block && finished_.empty());
  if (finished_.empty()) return;
  pump();
  checked_.swap(finished_);  // while these are checked, more may come in
  {
    const Stopwatch stopwatch(stats_.check_ns);
    backend_.parallel_for(static_cast<std::int64_t>(checked_.size()),
                          [&](std::int64_t i) { check(checked_[static_cast<std::size_t>(i)]); });
  }
  for (const int slot : checked_) {
    if (transfer(slot).why) {
      cache_.fail(slot);
    } else {
      cache_.complete(slot);
      if (transfer(slot).start) stats_.read_time.add(transfer(slot).read_ns);
      if (device_) unpublished_.push_back(slot);
    }
  }
  checked_.clear();
}

// The expert of a slot has landed: is it what it should be? Called by several threads, for a slot
// each.
void ExpertStreamer::check(int slot) {
  try {
    reader_->finish(slot);
  } catch (const Error& error) {
    transfer(slot).why = error;
  }
}

void ExpertStreamer::count_hit(int bank, int slot) {
  ++bank_stats(bank).hits;
  if (uses_ != nullptr) ++uses_->hits[static_cast<std::size_t>(store_.id(cache_.key(slot)))];
  const Purpose purpose = std::exchange(transfer(slot).purpose, Purpose::Demand);
  if (purpose == Purpose::Prefetch) ++stats_.prefetches_used;
}

void ExpertStreamer::count_miss(ExpertKey key) {
  BankStats& stats = bank_stats(key.bank);
  ++stats.misses;
  stats.bytes_missed += store_.read_bytes(key);
  if (uses_ != nullptr) ++uses_->misses[static_cast<std::size_t>(store_.id(key))];
}

ExpertStreamer::Request::Request(ExpertStreamer* streamer, int bank,
                                 std::span<const std::int32_t> experts)
    : streamer_(streamer), bank_(bank), experts_(experts) {
  ExpertStreamer& s = *streamer;
  for (RequestObserver* observer : s.observers_) observer->on_request(bank, experts);
  // What still waits of the prefetch for this request is claimed by it.
  s.prefetches_.clear();
  s.reap(/*block=*/false);
  s.cache_.begin_request(bank);
  // Hits are pinned before any miss claims a slot: a miss never evicts what this request needs.
  for (int i = 0; i < static_cast<int>(experts.size()); ++i) {
    const int slot = s.cache_.find(key(i));
    if (slot < 0) {
      waiting_.push_back(i);
      continue;
    }
    s.count_hit(bank, slot);
    s.cache_.pin(slot);
    if (s.cache_.state(slot) == ExpertCache::State::Ready) {
      ready_.push_back({i, slot});
    } else {
      reading_.push_back({i, slot, /*joined=*/true});
    }
  }
  for (int i = 0; i < static_cast<int>(experts.size()); ++i) s.cache_.use(key(i));
  while (!waiting_.empty() && start(waiting_.front())) waiting_.pop_front();
  s.pump();
  s.note_progress();
}

ExpertStreamer::Request::~Request() {
  for (const Item& item : ready_) streamer_->cache_.unpin(item.slot);
  for (const Item& item : reading_) streamer_->cache_.unpin(item.slot);
  // What has not been started is of no use to anybody.
  for (const int slot : streamer_->demanded_) streamer_->cache_.fail(slot);
  streamer_->demanded_.clear();
}

bool ExpertStreamer::Request::start(int index) {
  ExpertStreamer& s = *streamer_;
  if (!s.claim(key(index), Purpose::Demand)) return false;
  const int slot = s.cache_.find(key(index));
  s.cache_.pin(slot);
  reading_.push_back({index, slot});
  s.count_miss(key(index));
  return true;
}

// Moves what has been read to ready_; throws for what could not be.
void ExpertStreamer::Request::sort_out_reading() {
  ExpertStreamer& s = *streamer_;
  std::optional<Error> error;
  std::erase_if(reading_, [&](const Item& item) {
    switch (s.cache_.state(item.slot)) {
      case ExpertCache::State::InFlight:
        return false;
      case ExpertCache::State::Ready:
        ready_.push_back(item);
        return true;
      default:
        // A read that was started for a prefetch, or for a pass that has failed since, is not this
        // request's failure: it tries by itself.
        if (item.joined) {
          waiting_.push_back(item.index);
        } else {
          error = s.transfer(item.slot).why;
        }
        s.cache_.unpin(item.slot);
        return true;
    }
  });
  if (error) throw *error;
}

bool ExpertStreamer::Request::wait() {
  ExpertStreamer& s = *streamer_;
  s.reap(/*block=*/false);
  sort_out_reading();
  while (true) {
    while (!waiting_.empty() && start(waiting_.front())) waiting_.pop_front();
    s.pump();
    if (!ready_.empty()) return true;
    if (reading_.empty() && waiting_.empty()) return false;
    MOEFLUX_ASSERT(s.reader_->n_moving() > 0 || !s.finished_.empty());
    const Stopwatch stopwatch(s.bank_stats(bank_).wait_ns);
    s.reap(/*block=*/true);
    sort_out_reading();
    s.note_progress();
  }
}

std::optional<ExpertLease> ExpertStreamer::Request::next() {
  if (!has_ready() && !wait()) return std::nullopt;
  const Item item = ready_.front();
  ready_.pop_front();
  return ExpertLease(&streamer_->cache_, &streamer_->backend_, item.slot, item.index);
}

}  // namespace moeflux
