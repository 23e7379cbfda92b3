// Compares the engine with golden values of a reference implementation, layer by layer.
//
// A golden file is a safetensors file. For a prompt of T tokens it holds ids [T], hidden [L+1, T,
// d], logits [T, V], route.N.ids and route.N.weights [T, K] of every layer N with experts, greedy
// [G], greedy_logits [G, V], for a model with an MTP head mtp_logits [T-1, V], and optionally final
// [T, d]. Several prompts carry prefixes: p0.ids, p0.logits, p1.ids, ... Such a file may leave out
// routes, greedy or mtp_logits, but then for all of its prompts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/verify/row_difference.h"

namespace moeflux {

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
