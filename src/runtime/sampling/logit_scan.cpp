#include "runtime/sampling/logit_scan.h"

#include <algorithm>
#include <array>

namespace moeflux {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Independent lanes let the compiler use vector registers without reordering anything that matters.
constexpr std::size_t kLanes = 16;

// The comparison is false for NaN, so NaN never becomes the largest.
float largest(std::span<const float> block) {
  std::array<float, kLanes> lanes{};
  lanes.fill(kMinusInfinity);
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = block[i + lane];
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
    }
  }
  float best = kMinusInfinity;
  for (; i < block.size(); ++i) best = block[i] > best ? block[i] : best;
  for (const float x : lanes) best = x > best ? x : best;
  return best;
}

Candidate candidate_at(std::span<const float> logits, std::size_t i) {
  return {logits[i], static_cast<TokenId>(i), 0};
}

void keep_largest(std::vector<Candidate>& candidates, std::size_t k) {
  if (candidates.size() <= k) return;
  const auto kth = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(candidates.begin(), kth, candidates.end(), more_likely);
  candidates.erase(kth, candidates.end());
}

float smallest_logit(const std::vector<Candidate>& candidates) {
  return std::min_element(candidates.begin(), candidates.end(),
                          [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; })
      ->logit;
}

}  // namespace

std::size_t index_of_largest(std::span<const float> logits) {
  constexpr std::size_t kBlock = 1024;
  float best = kMinusInfinity;
  std::size_t best_begin = kNoIndex;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const float x = largest(logits.subspan(begin, std::min(kBlock, logits.size() - begin)));
    if (x > best) {
      best = x;
      best_begin = begin;
    }
  }
  if (best_begin == kNoIndex) return kNoIndex;
  const auto first = logits.begin() + static_cast<std::ptrdiff_t>(best_begin);
  return static_cast<std::size_t>(std::find(first, logits.end(), best) - logits.begin());
}

void select_largest(std::span<const float> logits, std::size_t k, std::vector<Candidate>& out) {
  constexpr std::size_t kBlock = 4 * kLanes;
  out.clear();
  if (k == 0) return;
  // Let the buffer outgrow k before cutting it back: then the cuts cost O(1) per logit in the worst
  // case.
  const std::size_t full = k + std::max<std::size_t>(k, 256);
  // Once k candidates are kept, only a strictly larger logit can enter: an equal one has a higher
  // id.
  float bar = kMinusInfinity;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, logits.size());
    if (!(largest(logits.subspan(begin, end - begin)) > bar)) continue;
    for (std::size_t i = begin; i < end; ++i) {
      if (logits[i] > bar) out.push_back(candidate_at(logits, i));
    }
    if (out.size() >= full) {
      keep_largest(out, k);
      bar = smallest_logit(out);
    }
  }
  keep_largest(out, k);
}

void select_above(std::span<const float> logits, float floor, std::vector<Candidate>& out) {
  constexpr std::size_t kBlock = 4 * kLanes;
  std::size_t n = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, logits.size());
    if (!(largest(logits.subspan(begin, end - begin)) > floor)) continue;
    // Writing every logit and advancing only past the wanted ones leaves no branch to mispredict.
    out.resize(n + kBlock);
    for (std::size_t i = begin; i < end; ++i) {
      out[n] = candidate_at(logits, i);
      n += logits[i] > floor ? 1 : 0;
    }
  }
  out.resize(n);
}

}  // namespace moeflux
