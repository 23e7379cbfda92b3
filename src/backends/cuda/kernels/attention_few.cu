// Attention of few tokens: split over pieces of the keys.
#include "backends/cuda/kernels/attention_parts.h"
