// How blocks of GGUF lie in interleaved tiles (quant/interleave.h).
#pragma once
