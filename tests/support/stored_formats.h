// Random matrices in every way of storing them that is read, with the values they stand for. The
// values are computed from the definitions of the formats and share no code with the engine's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "support/random.h"
#include "support/safetensors_writer.h"

namespace moeflux::test {

// "gptq4", "nvfp4-ct", ...
std::span<const std::string_view> stored_formats();

// Whether the format can hold such a matrix.
bool can_store(std::string_view format, std::int64_t rows, std::int64_t cols);

// The config of a checkpoint in that format, but for what a family adds. Groups of `group` columns
// where the format leaves a choice.
Json format_config(std::string_view format, int group);

// Adds the tensors of a matrix [rows, cols] of random codes and scales; returns its values.
std::vector<float> add_stored(SafetensorsWriter& out, Random& random, std::string_view format,
                              const std::string& module, std::int64_t rows, std::int64_t cols,
                              int group);

}  // namespace moeflux::test
