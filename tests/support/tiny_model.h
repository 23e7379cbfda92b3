// Checkpoints of random small sizes and random weights, in the released layouts of both families.
// Their shapes are odd on purpose: no two sizes agree unless they must.
#pragma once

#include <string>

#include "support/random.h"

namespace moeflux::test {

// Write config.json and model.safetensors (F32) to the directory.
void write_random_qwen(Random& random, const std::string& directory);
void write_random_deepseek(Random& random, const std::string& directory);

}  // namespace moeflux::test
