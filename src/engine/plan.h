// Where the memory of a model goes, before any of it is allocated. The engine keeps to this plan,
// and the commands that speak of a model's needs show it: the floor is computed here and nowhere
// else.
//
// Memory holds, whatever the budget: the dense weights, the context of the sessions, the scratch of
// a forward pass, and room for the experts that must be there at once. What the budget leaves
// beyond that floor is expert cache, in slots of the sizes that experts have, at most one for each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/kv_cache.h"
#include "experts/expert_store.h"
#include "families/family.h"
#include "model/model_config.h"

namespace moeflux {

// The routed experts of one layer of the trunk.
struct BankSize {
  int n_experts = 0;
  int top_k = 0;
  std::uint64_t expert_bytes = 0;  // as stored, of the largest
  bool sigmoid_router = false;
};

// The weights of a model, in bytes.
struct ModelSizes {
  std::uint64_t dense_bytes = 0;            // in memory
  std::uint64_t dense_bytes_per_token = 0;  // of these, what every token reads: no embedding table
                                            // (unless it is the head as well), no MTP head
  std::vector<BankSize> banks;              // of the trunk, in the order of its layers
  std::uint64_t n_experts_total = 0;        // of all banks, that of the MTP head included
  std::uint64_t expert_bytes_total = 0;     // as stored
  std::vector<SlotClass> slots;             // of memory for experts, by their size
  std::uint64_t program_bytes = 0;          // everything that is no weight: code, tokenizer, index

  int top_k() const;              // the largest of all banks
  int experts_of_a_bank() const;  // in the largest
  std::uint64_t experts_per_token() const;
  std::uint64_t expert_bytes_per_token() const;
};

// `slots` are what the expert store says.
ModelSizes measure_sizes(const ModelSource& source, const ModelDescription& model,
                         std::span<const SlotClass> slots);

inline constexpr int kAutoDrafts = -1;  // some, where memory for them is easily found

struct PlanOptions {
  const BackendInfo* backend = nullptr;  // null: the default
  std::uint64_t memory_bytes = 0;        // the ceiling
  std::uint64_t device_bytes = 0;        // the ceiling of a device's own memory; 0: it has none
  std::int64_t context_length = 0;       // positions of a session
  KvType kv_type = KvType::F32;          // of keys and values
  int n_sessions = 1;                    // alive at the same time
  int n_checkpoints = 0;                 // of each
  int max_drafts = 0;              // tokens of a pass that a session can take back; kAutoDrafts
  std::int64_t max_batch = 0;      // tokens per forward pass; 0: as many as pay
  std::uint64_t min_slots = 0;     // experts that must be in memory at once; 0: top_k
  std::uint64_t reader_bytes = 0;  // buffers of the reader
  std::uint64_t tier_slots = 0;    // of each size, of pinned memory between device and drive
  int n_threads = 1;               // each has scratch of its own
  std::uint64_t other_bytes = 0;   // of the ceiling, not the engine's
};

struct MemoryPlan {
  std::uint64_t ceiling = 0;
  std::uint64_t device_ceiling = 0;  // 0: all of this is the host's memory
  std::uint64_t dense_bytes = 0;
  std::uint64_t context_bytes = 0;    // keys, values and recurrent state
  std::int64_t max_batch = 0;         // tokens per forward pass
  std::uint64_t kernel_bytes = 0;     // of such a pass, by the backend
  std::int64_t mixer_slice = 0;       // rows of a pass that a mixer takes at a time
  std::uint64_t workspace_bytes = 0;  // of such a pass, by the runtime
  int max_drafts = 0;
  std::uint64_t draft_bytes = 0;  // to make them; the states to go back to are context
  std::uint64_t reader_bytes = 0;
  std::uint64_t tier_bytes = 0;     // of pinned memory between device and drive
  std::uint64_t tier_slots = 0;     // experts it holds
  std::uint64_t program_bytes = 0;  // and what is beside the engine
  std::uint64_t slot_bytes = 0;     // of the largest expert
  std::uint64_t min_slots = 0;      // of each size
  std::uint64_t max_slots = 0;      // one for every expert
  std::uint64_t n_slots = 0;        // that the ceiling leaves room for; below the floor the fewest
  std::uint64_t floor_cache_bytes = 0, all_cache_bytes = 0, cache_bytes = 0;
  std::uint64_t floor_fixed_bytes = 0;

  bool has_device() const { return device_ceiling > 0; }
  std::uint64_t scratch_bytes() const { return workspace_bytes + kernel_bytes; }
  // What lies where the experts of the cache do, and what lies in the host's memory in any case.
  std::uint64_t beside_cache_bytes() const { return dense_bytes + context_bytes + scratch_bytes(); }
  std::uint64_t host_bytes() const {
    return draft_bytes + reader_bytes + tier_bytes + program_bytes;
  }
  // Of the host's memory, without the cache.
  std::uint64_t fixed_bytes() const {
    return host_bytes() + (has_device() ? 0 : beside_cache_bytes());
  }
  // With the shortest passes and no drafts, where the plan was free to choose.
  std::uint64_t floor_bytes() const {
    return floor_fixed_bytes + (has_device() ? 0 : floor_cache_bytes);
  }
  std::uint64_t all_bytes() const {
    return floor_fixed_bytes + (has_device() ? 0 : all_cache_bytes);
  }
  std::uint64_t used_bytes() const { return fixed_bytes() + (has_device() ? 0 : cache_bytes); }
  bool fits() const { return ceiling >= fixed_bytes() + (has_device() ? 0 : floor_cache_bytes); }
  // Of a device's own memory.
  std::uint64_t device_floor_bytes() const { return beside_cache_bytes() + floor_cache_bytes; }
  std::uint64_t device_all_bytes() const { return beside_cache_bytes() + all_cache_bytes; }
  std::uint64_t device_used_bytes() const { return beside_cache_bytes() + cache_bytes; }
  bool device_fits() const { return !has_device() || device_ceiling >= device_floor_bytes(); }
};

// A pass over many tokens reads and unpacks every expert once for all of them, but its scratch
// takes room from the cache. Left to choose, the plan gives scratch this share of the memory, and
// less where that would keep experts from being all resident.
inline constexpr std::int64_t kFewestTokensPerPass = 128, kMostTokensPerPass = 4096;
inline constexpr std::uint64_t kScratchShare = 16;  // a sixteenth
inline constexpr int kMostDrafts = 2;               // further ones are rarely right
inline constexpr std::uint64_t kDraftShare = 32;

// Depends on nothing but its arguments.
MemoryPlan plan_memory(const ModelConfig& config, const ModelSizes& sizes,
                       const PlanOptions& options);

}  // namespace moeflux
