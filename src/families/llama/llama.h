// Llama and what is built like it (model_type "llama"): dense, and the plainest of all.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kLlama;

}  // namespace moeflux
