// Gemma 4, the text model: sliding and global attention with heads of their own sizes, norms before
// and after every part, and experts beside a dense feed-forward (26B-A4B) or none (31B).
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kGemma4;

}  // namespace moeflux
