// Mixtral: grouped-query attention, every layer a mixture of experts named w1, w2 and w3.
#pragma once

#include "families/family.h"
#include "families/index_reader.h"

namespace moeflux {

extern const Family kMixtral;

// Experts below `block_sparse_moe`, each w1, w3, w2; or as exports of transformers that fuse them
// have them. Other families took these names over.
TensorNames mixtral_names(const ModelSource& source);

}  // namespace moeflux
