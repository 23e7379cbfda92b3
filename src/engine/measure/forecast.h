// How fast a model can be, from bytes and speeds alone: no file, no clock.
//
// A token reads the dense weights and the experts its routers choose. What the cache does not hold
// comes from the drive. With t_disk the time the drive needs for the misses and t_memory the time
// memory needs for everything, tokens follow each other
//   every t_disk + t_memory, when reading and computing take turns, and
//   every max(t_disk, t_memory), when they overlap perfectly: no engine can be faster.
// Where kernels do not keep up with memory, theirs is the speed that counts. Waiting for single
// reads costs extra.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan.h"

namespace moeflux {

struct TokenBytes {
  double dense = 0;    // weights every token reads
  double experts = 0;  // weights of the routed experts of one token, all layers
  double context = 0;  // keys and values that attention reads, at the length in question
  double total() const { return dense + experts + context; }
};

struct MachineSpeed {  // bytes per second
  double disk = 0;
  double memory = 0;
  double kernels = 0;  // of weights multiplied; 0: not known, and not the limit
};

struct TokenTime {  // seconds; infinite where a speed is 0 and something must be read
  double disk = 0;
  double memory = 0;                        // or what the kernels take, if that is more
  double tokens_per_second() const;         // overlapped: the bound
  double serial_tokens_per_second() const;  // taking turns
  bool disk_bound() const { return disk > memory; }
};

// hit_rate from 0 to 1: the part of the expert bytes that the cache holds. A miss is written to
// memory once and read once.
TokenTime token_time(const TokenBytes& bytes, double hit_rate, const MachineSpeed& speed);

// Everything about caching experts, in experts: `cached` of `total` fit, a token uses `per_token`
// (all layers), `per_layer` is how many there are to choose from.
struct ExpertCounts {
  std::uint64_t total = 0;
  std::uint64_t per_token = 0;
  std::uint64_t cached = 0;
  int per_layer = 0;
  bool sigmoid_router = false;
};

// Every expert equally likely, tokens independent of each other: the part that is cached. The worst
// case; no model routes like this. 0 when not even one token fits: a cache that drops what was used
// longest ago then drops everything before it is asked for again.
double uniform_hit_rate(const ExpertCounts& experts);

// A conversation about one topic: with f = cached / total
//   1 - 0.67 exp(-5.2 f)   softmax routers over many experts
//   1 - 0.75 exp(-4 f)     sigmoid routers, whose training evens out the load
// fitted to published hit rates of caches of 6 to 50 percent; below that, linear down to 0 at the
// experts of one token. With fewer than 128 experts per layer the mean of this and the uniform
// rate: few experts are each used often.
double typical_hit_rate(const ExpertCounts& experts);

// Topics change: an eighth less than typical, never less than uniform.
double mixed_hit_rate(const ExpertCounts& experts);

// Different experts that n tokens use in a layer, when all are equally likely.
double expected_experts(int n_experts, int top_k, double n_tokens);

// Reading a prompt in passes of `chunk` tokens, each of which sweeps over the experts it uses. The
// drive's part alone, in tokens per second; infinite when all experts are cached. For long prompts
// computing is the limit.
struct PrefillSweep {
  double expert_bytes_total = 0;  // of all experts
  int n_experts = 0;              // per layer
  int top_k = 0;
  double cached_share = 0;
  double chunk = 0;
};
double prefill_disk_tokens_per_second(const PrefillSweep& sweep, double disk_bytes_per_second);

// What a memory plan is worth: all of this applied to a model, a plan and the speed of a machine.

// How far into a conversation: attention reads more with every token.
inline constexpr std::int64_t kForecastLength = 2048;

struct HitRates {
  double uniform = 0;
  double typical = 0;
  double mixed = 0;  // topics
};

struct Forecast {
  HitRates hit_rates;
  TokenBytes bytes;                 // per token, kForecastLength tokens into a conversation
  double disk_bytes_per_token = 0;  // at the typical hit rate
  TokenTime uniform, typical, mixed;
  double prefill_tokens_per_second = 0;  // as far as the drive is concerned; infinite: it is not
};

Forecast forecast(const ModelConfig& config, const ModelSizes& sizes, const PlanOptions& options,
                  const MachineSpeed& speed);

// The least memory with which a typical conversation waits for memory and no longer for the drive,
// found to a thousandth of the experts; all experts when only that will do.
std::uint64_t recommended_bytes(const ModelConfig& config, const ModelSizes& sizes,
                                PlanOptions options, const MachineSpeed& speed);

// The same options with a ceiling that holds this share of all experts, or the floor if that is
// more.
PlanOptions with_cached_share(const ModelConfig& config, const ModelSizes& sizes,
                              PlanOptions options, double share);

}  // namespace moeflux
