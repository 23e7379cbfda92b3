// GLM-4.5 to 4.7: the router and the MTP layer of DeepSeek, attention that rotates half of a head.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kGlm4Moe;

}  // namespace moeflux
