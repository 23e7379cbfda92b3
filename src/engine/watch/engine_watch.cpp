#include "engine/watch/engine_watch.h"

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/measure/machine.h"
#include "engine/measure/measure_speed.h"
#include "io/measure_reader.h"

namespace moeflux {
namespace {

std::string cause_name(MemoryCause cause) {
  switch (cause) {
    case MemoryCause::Machine:
      return "machine";
    case MemoryCause::Cgroup:
      return "cgroup";
    case MemoryCause::Stalls:
      return "stalls";
    case MemoryCause::None:
      break;
  }
  return "";
}

std::vector<WatchedBank> banks_of(const Engine& engine) {
  const ExpertStore& store = engine.experts().store();
  std::vector<WatchedBank> banks(static_cast<std::size_t>(store.n_banks()));
  const auto add = [&](const std::string& layer, const auto& ffn) {
    const auto* moe = std::get_if<Moe<Stored>>(&ffn);
    if (moe == nullptr) return;
    banks[static_cast<std::size_t>(moe->bank)] = {
        layer, store.n_experts(moe->bank), moe->spec.top_k, store.read_bytes({moe->bank, 0})};
  };
  const ModelTensors<Stored>& tensors = engine.description().index.tensors;
  for (std::size_t i = 0; i < tensors.layers.size(); ++i)
    add(std::to_string(i), tensors.layers[i].ffn);
  if (tensors.mtp) add("mtp", tensors.mtp->layer.ffn);
  return banks;
}

double in_seconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

}  // namespace

EngineWatch::EngineWatch(Engine& engine)
    : engine_(engine),
      banks_(banks_of(engine)),
      uses_(engine.experts().store().n_experts_total()) {}

bool EngineWatch::take(EngineFrame& frame) {
  if (!full_) return false;
  std::swap(frame, mailbox_);
  full_ = false;
  return true;
}

void EngineWatch::look() {
  const bool wanted = wanted_.load(std::memory_order_relaxed);
  if (wanted != is_counting_) set_counting(wanted);
  if (wanted && Clock::now() - last_ >= kInterval && !full_) publish();
}

void EngineWatch::set_counting(bool counting) {
  is_counting_ = counting;
  uses_.clear();
  engine_.experts().count_uses(counting ? &uses_ : nullptr);
}

void EngineWatch::publish() {
  const bool wanted = wanted_.load(std::memory_order_relaxed);
  if (wanted != is_counting_) set_counting(wanted);
  if (!wanted) return;
  if (full_) {
    missed_one_ = true;
    // Whoever takes the frame looks at this flag afterwards, so it may have come too late.
    if (full_ || !missed_one_.exchange(false)) return;
  }
  fill(mailbox_);
  last_ = Clock::now();
  full_ = true;
  if (on_frame_) on_frame_();
}

void EngineWatch::fill(EngineFrame& frame) {
  const ExpertStreamer& experts = engine_.experts();
  const StreamerStats& stats = experts.stats();
  frame.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  frame.passes = stats.steps;
  frame.rows = stats.tokens;
  BankStats total;
  frame.bytes_used = stats.steps * engine_.sizes().dense_bytes_per_token;
  for (std::size_t i = 0; i < stats.banks.size(); ++i) {
    total += stats.banks[i];
    frame.bytes_used += (stats.banks[i].hits + stats.banks[i].misses) * banks_[i].expert_bytes;
  }
  frame.hits = total.hits;
  frame.misses = total.misses;
  frame.bytes_read = stats.bytes_read;
  frame.prefetched = stats.prefetched;
  frame.prefetches_used = stats.prefetches_used;
  frame.warmed = stats.warmed;
  frame.wait_seconds = in_seconds(total.wait_ns);
  frame.drive_busy_seconds = in_seconds(stats.busy_ns);

  fill_locations(frame.locations);
  const ExpertCache& cache = experts.cache();
  const CacheResizes& resizes = engine_.cache_resizes();
  frame.cache = {.bytes = cache.bytes(),
                 .capacity_bytes = cache.capacity_bytes(),
                 .held_bytes = cache.held_bytes(),
                 .shrunk = resizes.shrunk,
                 .grown = resizes.grown,
                 .cause = cause_name(resizes.last_cause)};
  frame.lookahead = engine_.governor().report();
  frame.fixed_lookahead = engine_.fixed_lookahead().value_or(-1);
  frame.drafts = engine_.draft_governor().report();
  frame.max_drafts = engine_.max_drafts();
  frame.limits = {.drive = engine_.drive_speed(), .memory = memory_limit_};
  frame.uses = uses_;
  uses_.clear();
}

void EngineWatch::fill_locations(std::vector<ExpertLocation>& locations) const {
  const ExpertStreamer& experts = engine_.experts();
  const ExpertCache& cache = experts.cache();
  const ExpertCache* tier = experts.host_tier();
  const ExpertIds& ids = experts.store().ids();
  const ExpertLocation cached = tier == nullptr ? ExpertLocation::Memory : ExpertLocation::Device;
  const auto location_in = [](const ExpertCache& of, ExpertKey key, ExpertLocation ready) {
    const int slot = of.find(key);
    if (slot < 0) return ExpertLocation::Drive;
    const ExpertCache::State state = of.state(slot);
    if (state == ExpertCache::State::InFlight) return ExpertLocation::Reading;
    return state == ExpertCache::State::Ready ? ready : ExpertLocation::Drive;
  };
  locations.clear();
  for (int bank = 0; bank < ids.n_layers(); ++bank) {
    for (int expert = 0; expert < ids.n_experts(bank); ++expert) {
      const ExpertKey key{bank, expert};
      ExpertLocation location = location_in(cache, key, cached);
      if (tier != nullptr && location != cached)
        location = std::max(location, location_in(*tier, key, ExpertLocation::Memory));
      locations.push_back(location);
    }
  }
}

void EngineWatch::measure_limits() {
  if (std::exchange(measured_, true)) return;
  try {
    engine_.measure_drive_speed();
    // The weights lie there anyway. Where they are too few, caches are faster than memory.
    constexpr std::uint64_t kEnough = std::uint64_t{64} << 20;
    const std::uint64_t bytes = std::max(kEnough, 2 * describe_machine().cpu.l3_bytes);
    MemoryMeasureOptions options{.bytes = bytes, .seconds = 0.1};
    const Buffer& weights = engine_.weights().memory();
    MemoryBudget::Reservation own;
    if (weights.host() != nullptr && weights.bytes() >= bytes)
      options.memory = {weights.host(), static_cast<std::size_t>(weights.bytes())};
    else
      own = engine_.budget().reserve("measuring", bytes);
    memory_limit_ = measure_memory(engine_.backend().n_threads(), options).bytes_per_second;
  } catch (const Error&) {  // then they stay unknown
  }
}

}  // namespace moeflux
