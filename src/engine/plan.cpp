#include "engine/plan.h"

#include <algorithm>
#include <variant>

#include "base/file.h"
#include "engine/decoder.h"
#include "runtime/forward.h"
#include "runtime/pass_memory.h"
#include "runtime/session.h"
#include "runtime/weight_store.h"

namespace moeflux {
namespace {

std::uint64_t expert_bytes(const ExpertBank& bank, int expert) {
  return bank.gate.at(expert).bytes() + bank.up.at(expert).bytes() + bank.down.at(expert).bytes();
}

// The weights that every token of the trunk reads.
std::uint64_t bytes_per_token(const ModelTensors<Stored>& tensors) {
  ModelTensors<Stored> read = tensors;
  read.mtp.reset();
  if (!read.head.empty()) read.embed = {};  // one row of it, not worth counting
  return WeightStore::bytes_needed(read);
}

// Measured with models of all sizes and rounded up generously: code, thread stacks, the heap, and
// what it grows by while answering; a tokenizer in memory is several times its file.
constexpr std::uint64_t kProgramBytes = 48u << 20;
constexpr std::uint64_t kTokenizerFactor = 8;
constexpr std::uint64_t kIndexBytesPerExpert = 1024;

std::uint64_t tokenizer_bytes(const TextAssets& text) {
  std::uint64_t bytes = text.gguf_bytes;
  for (const std::string* path :
       {&text.tokenizer_json, &text.tokenizer_bin, &text.vocab_bin, &text.tiktoken_model}) {
    if (!path->empty()) bytes += File(*path).size();
  }
  return bytes;
}

}  // namespace

int ModelSizes::top_k() const {
  int most = 0;
  for (const BankSize& bank : banks) most = std::max(most, bank.top_k);
  return most;
}

int ModelSizes::experts_of_a_bank() const {
  int most = 0;
  for (const BankSize& bank : banks) most = std::max(most, bank.n_experts);
  return most;
}

std::uint64_t ModelSizes::experts_per_token() const {
  std::uint64_t count = 0;
  for (const BankSize& bank : banks) count += static_cast<std::uint64_t>(bank.top_k);
  return count;
}

std::uint64_t ModelSizes::expert_bytes_per_token() const {
  std::uint64_t bytes = 0;
  for (const BankSize& bank : banks) {
    bytes += static_cast<std::uint64_t>(bank.top_k) * bank.expert_bytes;
  }
  return bytes;
}

ModelSizes measure_sizes(const ModelSource& source, const ModelDescription& model,
                         std::span<const SlotClass> slots) {
  ModelSizes sizes;
  sizes.slots.assign(slots.begin(), slots.end());
  sizes.dense_bytes = WeightStore::bytes_needed(model.index.tensors);
  sizes.dense_bytes_per_token = bytes_per_token(model.index.tensors);
  std::vector<std::uint64_t> largest(model.index.experts.size());
  for (std::size_t i = 0; i < largest.size(); ++i) {
    const ExpertBank& bank = model.index.experts[i];
    for (int e = 0; e < bank.gate.count(); ++e) {
      const std::uint64_t bytes = expert_bytes(bank, e);
      largest[i] = std::max(largest[i], bytes);
      sizes.expert_bytes_total += bytes;
      ++sizes.n_experts_total;
    }
  }
  sizes.program_bytes = kProgramBytes + kTokenizerFactor * tokenizer_bytes(source.text()) +
                        kIndexBytesPerExpert * sizes.n_experts_total;
  for (const Layer<Stored>& layer : model.index.tensors.layers) {
    const auto* moe = std::get_if<Moe<Stored>>(&layer.ffn);
    if (moe == nullptr) continue;
    sizes.banks.push_back({.n_experts = moe->spec.n_experts,
                           .top_k = moe->spec.top_k,
                           .expert_bytes = largest[static_cast<std::size_t>(moe->bank)],
                           .sigmoid_router = moe->spec.router.scoring == RouterScoring::Sigmoid});
  }
  return sizes;
}

namespace {

// What the ceiling leaves of the host's memory: experts that the device has no room for.
void fill_tier(const ModelSizes& sizes, MemoryPlan& plan) {
  const std::uint64_t used = plan.fixed_bytes();
  if (plan.ceiling <= used) return;
  const SlotCounts slots = slots_for(sizes.slots, plan.tier_bytes + (plan.ceiling - used));
  const std::uint64_t bytes = bytes_of(sizes.slots, slots);
  if (bytes <= plan.tier_bytes) return;
  plan.tier_bytes = bytes;
  plan.tier_slots = 0;
  for (const std::size_t n : slots) plan.tier_slots += n;
}

MemoryPlan plan_with_batch(const ModelConfig& config, const ModelSizes& sizes,
                           const PlanOptions& options, std::int64_t max_batch) {
  MemoryPlan plan;
  plan.ceiling = options.memory_bytes;
  plan.device_ceiling = options.device_bytes;
  plan.dense_bytes = sizes.dense_bytes;
  plan.context_bytes = static_cast<std::uint64_t>(options.n_sessions) *
                       Session::bytes_needed(config, {.max_length = options.context_length,
                                                      .kv_type = options.kv_type,
                                                      .n_checkpoints = options.n_checkpoints,
                                                      .max_drafts = options.max_drafts});
  plan.max_batch = std::min(max_batch, options.context_length * options.n_sessions);
  const BackendInfo& backend = options.backend == nullptr ? find_backend() : *options.backend;
  plan.mixer_slice = backend.is_reached_by_host ? kMixerSlice : kDeviceMixerSlice;
  const PassMemory pass = measure_pass(config, plan.max_batch, plan.mixer_slice);
  plan.workspace_bytes = pass.workspace_bytes;
  plan.kernel_bytes = backend.scratch_needed(pass.widest, options.n_threads);
  plan.max_drafts = options.max_drafts;
  plan.draft_bytes = static_cast<std::uint64_t>(options.n_sessions) *
                     Decoder::bytes_needed(config, plan.max_batch, options.max_drafts);
  plan.reader_bytes = options.reader_bytes;
  std::uint64_t repack_bytes = 0;
  for (const SlotClass& each : sizes.slots)
    repack_bytes = std::max<std::uint64_t>(repack_bytes, each.repack_bytes);
  plan.reader_bytes += static_cast<std::uint64_t>(options.n_threads) * repack_bytes;
  plan.tier_bytes = floor_bytes(sizes.slots, options.tier_slots);
  plan.program_bytes = sizes.program_bytes + options.other_bytes;
  for (const SlotClass& each : sizes.slots)
    plan.slot_bytes = std::max<std::uint64_t>(plan.slot_bytes, each.slot_bytes);
  plan.max_slots = sizes.n_experts_total;
  const auto top_k = static_cast<std::uint64_t>(sizes.top_k());
  plan.min_slots = std::min(std::max(options.min_slots, top_k), plan.max_slots);
  plan.floor_cache_bytes = floor_bytes(sizes.slots, plan.min_slots);
  plan.all_cache_bytes = floor_bytes(sizes.slots, plan.max_slots);
  plan.floor_fixed_bytes = plan.fixed_bytes();
  const std::uint64_t fixed = plan.has_device() ? plan.beside_cache_bytes() : plan.fixed_bytes();
  const std::uint64_t ceiling = plan.has_device() ? plan.device_ceiling : plan.ceiling;
  const std::uint64_t left = ceiling > fixed ? ceiling - fixed : 0;
  const SlotCounts slots =
      slots_for(sizes.slots, std::max(left, plan.floor_cache_bytes), plan.min_slots);
  plan.cache_bytes = bytes_of(sizes.slots, slots);
  for (const std::size_t n : slots) plan.n_slots += n;
  plan.tier_slots = options.tier_slots * sizes.slots.size();
  if (plan.has_device() && plan.n_slots < plan.max_slots) fill_tier(sizes, plan);
  return plan;
}

// Scratch of longer passes and copies of states take room from the cache. Where experts stream
// anyway a small share of the memory is well spent; experts that could all be resident stay so.
bool easily_found(const MemoryPlan& plan, const MemoryPlan& least, std::uint64_t share) {
  const bool evicts = least.n_slots == least.max_slots && plan.n_slots < plan.max_slots;
  if (plan.has_device()) {
    return plan.fits() && plan.device_fits() && !evicts &&
           plan.beside_cache_bytes() - least.beside_cache_bytes() <= plan.device_ceiling / share;
  }
  return plan.fits() && !evicts && plan.fixed_bytes() - least.fixed_bytes() <= plan.ceiling / share;
}

MemoryPlan plan_passes(const ModelConfig& config, const ModelSizes& sizes,
                       const PlanOptions& options) {
  if (options.max_batch > 0) return plan_with_batch(config, sizes, options, options.max_batch);
  const MemoryPlan least = plan_with_batch(config, sizes, options, kFewestTokensPerPass);
  for (std::int64_t n = kMostTokensPerPass; n > kFewestTokensPerPass; n /= 2) {
    MemoryPlan plan = plan_with_batch(config, sizes, options, n);
    plan.floor_fixed_bytes = least.floor_fixed_bytes;
    if (easily_found(plan, least, kScratchShare)) return plan;
  }
  return least;
}

}  // namespace

MemoryPlan plan_memory(const ModelConfig& config, const ModelSizes& sizes,
                       const PlanOptions& options) {
  if (options.max_drafts != kAutoDrafts) return plan_passes(config, sizes, options);
  PlanOptions tried = options;
  tried.max_drafts = 0;
  const MemoryPlan least = plan_passes(config, sizes, tried);
  for (tried.max_drafts = kMostDrafts; tried.max_drafts > 0; --tried.max_drafts) {
    MemoryPlan plan = plan_passes(config, sizes, tried);
    plan.floor_fixed_bytes = least.floor_fixed_bytes;
    if (plan.max_batch == least.max_batch && easily_found(plan, least, kDraftShare)) return plan;
  }
  return least;
}

}  // namespace moeflux
