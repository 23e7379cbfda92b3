// Keys of a config that nobody reads. Most say nothing about what a model computes; one that seems
// to, and is ignored, would be a silently wrong model.
#pragma once

#include <span>
#include <string_view>

#include "source/model_source.h"

namespace moeflux {

// Throws Unsupported for a key whose name speaks of attention, positions, norms, scales or biases,
// unless the family reads it, or it is a switch that is off, or it is known to be of no meaning.
// Beside a `text_config`, such a key must repeat what is said there.
void refuse_unread_keys(const ModelSource& source,
                        std::span<const std::string_view> read_by_family);

}  // namespace moeflux
