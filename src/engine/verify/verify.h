// Compares the engine with golden values of a reference implementation, layer by layer.
//
// A golden file is a safetensors file. For a prompt of T tokens it holds ids [T], hidden [L+1, T,
// d], logits [T, V], route.N.ids and route.N.weights [T, K] of every layer N with experts, greedy
// [G], greedy_logits [G, V], for a model with an MTP head mtp_logits [T-1, V], and optionally final
// [T, d]. Several prompts carry prefixes: p0.ids, p0.logits, p1.ids, ... Such a file may leave out
// routes, greedy or mtp_logits, but then for all of its prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace moeflux {

// How far two matrices are apart, judged row by row: over a whole tensor one wrong row would drown.
struct RowDifference {
  double relative = 0;   // |a - b| / |b| of the worst row
  double value = 0;      // |a - b| / scale of the worst value
  double cosine = 1;     // of the worst row
  double max_abs = 0;    // largest |a - b|
  std::int64_t row = 0;  // where `relative` or `value` is worst, whichever is larger
};

// What a difference of one value is measured by: the root mean square of its row, or half of the
// value itself where that is larger. The first is capped: a row with one massive activation has a
// root mean square far above its other values.
inline constexpr double kMaxRowScale = 100;

// `ours` and `golden` hold rows of `width` values. NaN counts as infinitely far.
RowDifference compare_rows(std::span<const float> ours, std::span<const float> golden,
                           std::int64_t width);

struct VerifyCheck {
  std::string prompt = {};  // "" or "p0"
  std::string name = {};    // "layer 3", "logits", "routes 1", "greedy", ...
  RowDifference difference = {};
  std::string note = {};  // "24/24 tokens", "3 of 48 tokens routed differently"
  bool passed = false;
};

struct VerifyOptions {
  // Of a row's relative difference. A single value may differ by twice as much of its scale:
  // rounding errors spread over a row.
  double tolerance = 5e-5;
  std::int64_t chunk = 0;               // tokens per pass during prefill; 0: as many as fit
  std::function<void()> on_layer = {};  // called in every layer of every pass; may throw to stop
};

// Runs every check, calling `on_check` after each; tensors that belong to no check are named at the
// end. Returns whether all passed. Throws Error when the file is not a golden file of this model or
// lacks a tensor.
bool verify_model(Engine& engine, const std::string& golden_path, const VerifyOptions& options,
                  const std::function<void(const VerifyCheck&)>& on_check);

}  // namespace moeflux
