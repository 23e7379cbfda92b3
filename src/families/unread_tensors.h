// Tensors of a checkpoint that a model should compute with but no family reads.
#pragma once

#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

// Throws Unsupported naming a bias of a module that `index` reads, or a tensor in the attention of
// one of its layers, or a norm of one, that `index` does not read.
void refuse_unread_tensors(const ModelSource& source, const ModelIndex& index);

}  // namespace moeflux
