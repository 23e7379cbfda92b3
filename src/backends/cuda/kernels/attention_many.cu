// Attention of many tokens.
#include "backends/cuda/kernels/attention_parts.h"
