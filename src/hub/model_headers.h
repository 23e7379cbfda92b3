// A model on the hub as far as its headers: enough to say what it would need, for a few megabytes
// instead of all of it.
#pragma once

#include <string>

#include "hub/pull.h"

namespace moeflux {

// Writes into `directory` the files that pull_model() would fetch, with holes for the weights: they
// have their lengths, and of safetensors and GGUF files the headers. Returns the path to open. Do
// not run it.
std::string fetch_headers(const HubReference& reference, FileChoice choice,
                          const std::string& directory, const PullOptions& options);

}  // namespace moeflux
