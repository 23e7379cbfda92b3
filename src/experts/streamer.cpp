#include "experts/streamer.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "io/make_reader.h"

namespace moeflux {
namespace {

std::size_t slot_count(const ExpertStore& store, std::uint64_t cache_bytes) {
  if (store.n_experts_total() == 0) return 0;
  const std::uint64_t fitting = cache_bytes / store.slot_bytes();
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(fitting, 1, store.n_experts_total()));
}

// Where every expert has a slot nothing is ever given up: the cheapest policy does.
std::unique_ptr<EvictionPolicy> policy_for(std::string_view name, const ExpertStore& store,
                                           std::size_t n_slots) {
  auto policy = make_policy(name, store.ids(), n_slots);  // an unknown name is always an error
  return n_slots < store.n_experts_total() ? std::move(policy)
                                           : make_policy("lru", store.ids(), n_slots);
}

void one_after_another(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  for (std::int64_t i = 0; i < n; ++i) body(i);
}

std::uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
}

// A read is known by its slot and its place among the reads of the expert.
constexpr std::uint64_t tag_of(int slot, std::size_t read) {
  return (static_cast<std::uint64_t>(slot) << 16) | static_cast<std::uint64_t>(read);
}
constexpr int slot_of(std::uint64_t tag) {
  return static_cast<int>(tag >> 16);
}
constexpr std::size_t read_of(std::uint64_t tag) {
  return tag & 0xFFFF;
}

}  // namespace

ExpertStreamer::ExpertStreamer(ExpertStore store, MemoryBudget& budget, Options options)
    : store_(std::move(store)),
      reservation_(budget.reserve("expert cache",
                                  slot_count(store_, options.cache_bytes) * store_.slot_bytes())),
      cache_(store_, slot_count(store_, options.cache_bytes),
             policy_for(options.policy, store_, slot_count(store_, options.cache_bytes))),
      reader_(options.reader ? std::move(options.reader)
                             : make_reader(store_.source().disk_paths())),
      parallel_for_(options.parallel_for ? std::move(options.parallel_for) : one_after_another),
      transfers_(cache_.n_slots()),
      window_(static_cast<std::size_t>(std::max(options.reads_at_once, 1))),
      results_(64) {
  reader_reservation_ = budget.reserve("reader", reader_->info().memory_bytes);
  stats_.banks.resize(static_cast<std::size_t>(store_.n_banks()));
}

ExpertStreamer::~ExpertStreamer() {
  reader_->cancel_waiting();
  reader_.reset();  // waits for what is in flight into the cache's memory
}

void ExpertStreamer::begin_step(int n_tokens) {
  ++stats_.steps;
  stats_.tokens += static_cast<std::uint64_t>(n_tokens);
  for (RequestObserver* observer : observers_) observer->on_step(n_tokens);
}

void ExpertStreamer::set_capacity(std::size_t n_slots, std::size_t min_slots) {
  cache_.set_capacity(std::max(n_slots, min_slots));
}

bool ExpertStreamer::claim(ExpertKey key, Purpose purpose) {
  const int slot = cache_.claim(key);
  if (slot < 0) return false;
  transfer(slot) = {static_cast<int>(store_.reads(key).size()), 0, {}, std::nullopt, purpose};
  if (purpose == Purpose::Demand) {
    transfer(slot).start = std::chrono::steady_clock::now();
    demanded_.push_back(slot);
  } else {
    stats_.guessed += purpose == Purpose::Guess;
    stats_.warmed += purpose == Purpose::Warm;
    start(slot);
  }
  return true;
}

void ExpertStreamer::start(int slot) {
  const auto reads = store_.reads(cache_.key(slot));
  ops_.clear();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    ops_.push_back({.file = reads[i].disk_file,
                    .offset = reads[i].offset,
                    .out = {cache_.memory(slot) + reads[i].slot_offset, reads[i].bytes},
                    .tag = tag_of(slot, i)});
    stats_.bytes_read += reads[i].bytes;
  }
  if (n_moving_++ == 0) busy_since_ = std::chrono::steady_clock::now();
  reader_->submit(ops_);
}

// What a request waits for goes first, then guesses. Whatever the drive does not need to be busy
// stays here, where what turns out to be urgent passes it and what turns out to be wrong is
// dropped.
void ExpertStreamer::pump() {
  while (n_moving_ < window_) {
    if (!demanded_.empty()) {
      const int slot = demanded_.front();
      demanded_.pop_front();
      start(slot);
    } else if (!guesses_.empty()) {
      const ExpertKey key = guesses_.front();
      if (cache_.find(key) < 0 && !claim(key, Purpose::Guess)) return;
      guesses_.pop_front();
    } else if (!to_warm_.empty()) {
      if (!cache_.has_room()) {
        to_warm_.clear();
        return;
      }
      const ExpertKey key = to_warm_.front();
      to_warm_.pop_front();
      if (cache_.find(key) < 0) claim(key, Purpose::Warm);
    } else {
      return;
    }
  }
}

void ExpertStreamer::keep_reading() {
  if (n_moving_ == 0) return;
  collect(/*block=*/false);
  pump();
}

void ExpertStreamer::prefetch(int bank, std::span<const std::int32_t> experts) {
  guesses_.clear();
  for (const std::int32_t expert : experts) guesses_.push_back({bank, expert});
  pump();
}

void ExpertStreamer::warm(std::vector<ExpertKey> experts) {
  to_warm_.assign(experts.begin(), experts.end());
  pump();
}

void ExpertStreamer::finish_warming(const std::function<void()>& progress) {
  while (!to_warm_.empty() || n_moving_ > 0 || !finished_.empty()) {
    pump();
    reap(/*block=*/true);
    if (progress) progress();
  }
}

void ExpertStreamer::collect(bool block) {
  const std::size_t n = reader_->wait(results_, block);
  for (std::size_t i = 0; i < n; ++i) {
    const ReadResult& result = results_[i];
    const int slot = slot_of(result.tag);
    Transfer& moved = transfer(slot);
    if (result.error != 0 && moved.error == 0) {
      moved.error = result.error;
      moved.failed = store_.reads(cache_.key(slot))[read_of(result.tag)];
    }
    if (--moved.n_left > 0) continue;
    if (--n_moving_ == 0) stats_.busy_ns += nanoseconds_since(busy_since_);
    finished_.push_back(slot);
    if (moved.start && moved.error == 0) stats_.read_time.add(nanoseconds_since(*moved.start));
  }
}

void ExpertStreamer::reap(bool block) {
  collect(block && finished_.empty());
  if (finished_.empty()) return;
  pump();
  checked_.swap(finished_);  // while these are checked, more may come in
  {
    const Stopwatch stopwatch(stats_.check_ns);
    parallel_for_(static_cast<std::int64_t>(checked_.size()),
                  [&](std::int64_t i) { check(checked_[static_cast<std::size_t>(i)]); });
  }
  for (const int slot : checked_) {
    if (transfer(slot).why) {
      cache_.fail(slot);
    } else {
      cache_.complete(slot);
    }
  }
  checked_.clear();
}

// All reads of a slot are in: is its expert what it should be? Called by several threads, for a
// slot each.
void ExpertStreamer::check(int slot) {
  const ExpertKey key = cache_.key(slot);
  Transfer& moved = transfer(slot);
  try {
    if (moved.error != 0) {
      fail(Errc::Io, "{}: reading {} failed: {} bytes at offset {}: {}",
           store_.source().disk_file(moved.failed.disk_file).path(), store_.name(key),
           moved.failed.bytes, moved.failed.offset, describe_read_error(moved.error));
    }
    store_.prepare(key, cache_.memory(slot));
  } catch (const Error& error) {
    moved.why = error;
  }
}

ExpertStreamer::Request::Request(ExpertStreamer* streamer, int bank,
                                 std::span<const std::int32_t> experts)
    : streamer_(streamer), bank_(bank), experts_(experts) {
  ExpertStreamer& s = *streamer;
  BankStats& stats = s.stats_.banks[static_cast<std::size_t>(bank)];
  for (RequestObserver* observer : s.observers_) observer->on_request(bank, experts);
  // What still waits of the guesses for this request is no longer a guess.
  s.guesses_.clear();
  s.reap(/*block=*/false);
  s.cache_.begin_request(bank);
  // Hits are pinned before any miss claims a slot: a miss never drives out what this request needs.
  for (int i = 0; i < static_cast<int>(experts.size()); ++i) {
    const int slot = s.cache_.find(key(i));
    if (slot < 0) {
      waiting_.push_back(i);
      continue;
    }
    ++stats.hits;
    const Purpose purpose = std::exchange(s.transfer(slot).purpose, Purpose::Demand);
    if (purpose == Purpose::Guess) ++s.stats_.guesses_used;
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
  BankStats& stats = s.stats_.banks[static_cast<std::size_t>(bank_)];
  ++stats.misses;
  stats.bytes_missed += s.store_.read_bytes(key(index));
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
        // A read that was started for a guess, or for a pass that has failed since, is not this
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
    MOEFLUX_ASSERT(s.n_moving_ > 0 || !s.finished_.empty());
    const Stopwatch stopwatch(s.stats_.banks[static_cast<std::size_t>(bank_)].wait_ns);
    s.reap(/*block=*/true);
    sort_out_reading();
  }
}

std::optional<ExpertLease> ExpertStreamer::Request::next() {
  if (!has_ready() && !wait()) return std::nullopt;
  const Item item = ready_.front();
  ready_.pop_front();
  const ExpertView view =
      streamer_->store_.view(key(item.index), streamer_->cache_.memory(item.slot));
  return ExpertLease(&streamer_->cache_, item.slot, view, item.index);
}

}  // namespace moeflux
