// gpt-oss: attention with sinks and biases, every other layer within a window, and experts with
// biases whose gate and up rows alternate, released in MXFP4.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kGptOss;

}  // namespace moeflux
