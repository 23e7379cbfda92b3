// Compares the engine with golden values of a reference implementation, layer by layer.
//
// A golden file is a safetensors file with, for one prompt: ids [T], and any of hidden [L+1, T, d],
// final [T, d], logits [T, V], route.N.ids / route.N.weights [T, K], greedy [G], greedy_logits [G,
// V], mtp_logits [T-1, V]. Several prompts carry prefixes: p0.ids, p0.logits, p1.ids, ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace moeflux {

struct VerifyCheck {
  std::string prompt = {};  // "" or "p0"
  std::string name = {};    // "layer 3", "logits", "routes 1", "greedy", ...
  double relative = 0;      // |a - b| / |b| over the whole tensor; NaN counts as infinite
  double cosine = 1;
  double max_abs = 0;
  std::string note = {};  // "24/24 tokens", "3 of 48 tokens routed differently"
  bool passed = false;
};

struct VerifyOptions {
  double tolerance = 1e-4;
  std::int64_t chunk = 0;               // tokens per pass during prefill; 0: as many as fit
  std::function<void()> on_layer = {};  // called in every layer of every pass; may throw to stop
};

// Runs every check the golden file has data for, calling `on_check` after each. Returns whether all
// passed. Throws Error when the file is not a golden file of this model.
bool verify_model(Engine& engine, const std::string& golden_path, const VerifyOptions& options,
                  const std::function<void(const VerifyCheck&)>& on_check);

}  // namespace moeflux
