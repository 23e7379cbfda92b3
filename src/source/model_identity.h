// Names a model for what is kept about it elsewhere: snapshots of sessions, the prefix store. Equal
// for equal weights and config wherever they lie; another fine-tune of the same shape has another.
//
// A container has a fingerprint over all its checksums. Any other checkpoint is named by its index
// (names, types, shapes and places of all tensors, sizes of files) and by samples of its weights,
// since reading hundreds of gigabytes to name them would cost more than what the name is for: at
// most 4 MiB are read, from every kind of tensor alike, however many experts there are.
#pragma once

#include <string>

#include "source/model_source.h"

namespace moeflux {

// 32 hexadecimal digits. Throws Error(Io).
std::string model_identity(const ModelSource& source);

}  // namespace moeflux
