#include "runtime/sampling/token_filters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/portable_math.h"
#include "runtime/sampling/counter_rng.h"

namespace moeflux {
namespace {

// Rounds x in [0, 2^52] to the nearest integer, ties to even; vectorizes, unlike a conversion to
// int64.
std::uint64_t round_to_integer(double x) {
  constexpr double kTwo52 = 0x1p+52;
  return std::bit_cast<std::uint64_t>(x + kTwo52) - std::bit_cast<std::uint64_t>(kTwo52);
}

std::uint64_t sum_of_weights(std::span<const Candidate> candidates) {
  std::uint64_t sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// The smallest whole weight that is at least `share` of `total`, from 1 to total.
std::uint64_t share_of(double share, std::uint64_t total) {
  const double wanted = std::ceil(share * static_cast<double>(total));
  if (wanted >= static_cast<double>(total)) return total;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted));
}

// Moves the shortest prefix, in the order `before`, that weighs at least `need` to the front, its
// last candidate last; returns its length. `need` is from 1 to the total. Linear: each step halves
// the open range.
template <class Before>
std::size_t shortest_prefix(std::vector<Candidate>& candidates, std::uint64_t need, Before before) {
  const auto at = [&](std::size_t i) {
    return candidates.begin() + static_cast<std::ptrdiff_t>(i);
  };
  std::size_t low = 0;  // everything in front of it is in the prefix and is taken off `need`
  std::size_t high = candidates.size();
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    std::nth_element(at(low), at(middle), at(high), before);
    const std::uint64_t mass = sum_of_weights({at(low), at(middle)});
    if (mass >= need) {
      high = middle;
    } else {
      need -= mass;
      low = middle;
    }
  }
  return high;
}

// Keeps the candidates with the smallest keys (equals: the lower id) until they weigh at least
// `need`. A key is a distance in nats, not negative.
template <class Key>
void keep_smallest(std::uint64_t need, Key key, std::vector<Candidate>& candidates) {
  // A histogram of the keys tells where the cut is to a sixteenth of a nat, so that only the few
  // candidates up to there take part in the selection.
  constexpr std::size_t kBuckets = 1024;
  const auto bucket = [&](const Candidate& c) {
    return static_cast<std::size_t>(std::min(key(c) * 16.0, static_cast<double>(kBuckets - 1)));
  };
  std::array<std::uint64_t, kBuckets> mass{};
  for (const Candidate& c : candidates) mass[bucket(c)] += c.weight;
  std::size_t last = 0;
  for (std::uint64_t sum = mass[0]; sum < need; sum += mass[last]) ++last;
  std::erase_if(candidates, [&](const Candidate& c) { return bucket(c) > last; });
  candidates.resize(shortest_prefix(candidates, need, [&](const Candidate& a, const Candidate& b) {
    const double key_a = key(a), key_b = key(b);
    return key_a != key_b ? key_a < key_b : a.id < b.id;
  }));
}

bool lower_id(const Candidate& a, const Candidate& b) {
  return a.id < b.id;
}

}  // namespace

WeightScale::WeightScale(float top_logit, double temperature, std::size_t n_tokens)
    : top(finite_logit(top_logit)),
      // The bound keeps the inverse finite; a temperature below it is greedy in all but name.
      inverse_temperature(1.0 / std::max(temperature, 1e-30)),
      bits(std::min(52, 63 - static_cast<int>(std::bit_width(n_tokens)))) {
  MOEFLUX_ASSERT(bits >= 32);
}

double WeightScale::relative_log(float logit) const {
  return (finite_logit(logit) - top) * inverse_temperature;
}

float WeightScale::floor_for(int log2_weight) const {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  // A little lower than exact, so that rounding can only let a candidate too many through.
  const double floor = top + (log2_weight * kLn2 - 1e-6) / inverse_temperature;
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  if (!(floor > std::numeric_limits<float>::lowest())) return kMinusInfinity;
  return std::nextafter(static_cast<float>(floor), kMinusInfinity);
}

std::uint64_t total_weight(const std::vector<Candidate>& candidates) {
  return sum_of_weights(candidates);
}

void assign_weights(const WeightScale& scale, std::vector<Candidate>& candidates) {
  // Unpacked in blocks, so that the exponentials run in vector registers.
  constexpr std::size_t kBlock = 64;
  std::array<double, kBlock> logs{};
  std::array<std::uint64_t, kBlock> weights{};
  for (std::size_t begin = 0; begin < candidates.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, candidates.size() - begin);
    // At the smallest exponent the weight is zero at any scale.
    for (std::size_t i = 0; i < n; ++i) {
      logs[i] = std::max(scale.relative_log(candidates[begin + i].logit), kMinExponent);
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      weights[i] = round_to_integer(portable::scaled_exp(logs[i], scale.bits));
    }
    for (std::size_t i = 0; i < n; ++i) candidates[begin + i].weight = weights[i];
  }
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0; });
}

void keep_top_p(double mass, const WeightScale& scale, std::vector<Candidate>& candidates) {
  const std::uint64_t total = total_weight(candidates);
  const std::uint64_t need = share_of(mass, total);
  // Candidates of so little weight fit into what may be dropped even all together; most of a
  // vocabulary is.
  const std::uint64_t negligible = (total - need) / candidates.size();
  std::erase_if(candidates, [=](const Candidate& c) { return c.weight <= negligible; });
  keep_smallest(
      need, [&](const Candidate& c) { return -scale.relative_log(c.logit); }, candidates);
}

void keep_min_p(double ratio, const WeightScale& scale, std::vector<Candidate>& candidates) {
  const double least = std::ldexp(ratio, scale.bits);
  std::erase_if(candidates,
                [=](const Candidate& c) { return static_cast<double>(c.weight) < least; });
}

void keep_typical(double mass, const WeightScale& scale, std::vector<Candidate>& candidates) {
  // With l = relative_log and Z the sum of exp(l): surprise = log Z - l and entropy = log Z -
  // mean(l), so their distance is |l - mean(l)| and no logarithm is needed. The mean is summed in
  // integers, as weights are.
  std::uint64_t sum = 0;
  for (const Candidate& c : candidates) {
    sum += round_to_integer(static_cast<double>(c.weight) * -scale.relative_log(c.logit));
  }
  const std::uint64_t total = total_weight(candidates);
  const double mean = -(static_cast<double>(sum) / static_cast<double>(total));
  const auto distance = [&](const Candidate& c) {
    return std::abs(scale.relative_log(c.logit) - mean);
  };
  keep_smallest(share_of(mass, total), distance, candidates);
}

TokenId draw_token(std::uint64_t random, std::vector<Candidate>& candidates) {
  MOEFLUX_ASSERT(!candidates.empty());
  std::uint64_t need = 1 + scale_to(random, total_weight(candidates));
  if (!std::is_sorted(candidates.begin(), candidates.end(), lower_id)) {
    return candidates[shortest_prefix(candidates, need, lower_id) - 1].id;
  }
  for (const Candidate& c : candidates) {
    if (c.weight >= need) return c.id;
    need -= c.weight;
  }
  MOEFLUX_ASSERT(false);  // the weights add up to less than their total
  return candidates.back().id;
}

}  // namespace moeflux
