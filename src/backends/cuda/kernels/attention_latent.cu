// Attention of latents.
#include "backends/cuda/kernels/attention_parts.h"
