// What one rendering may cost. Templates come with downloaded models and are not trusted: a loop, a
// recursion or a growing string must end in an error, in about a second, without filling memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moeflux::jinja {

struct RenderLimits {
  // One step is a node evaluated, an item visited or 16 bytes of text handled; what allocates
  // counts for several.
  std::uint64_t max_steps = 20'000'000;
  std::size_t max_output_bytes = 64u << 20;   // of any one string, the result included
  std::size_t max_memory_bytes = 256u << 20;  // of all values alive at one time
  int max_depth = 600;                        // nested evaluations: expressions, blocks, macros
};

// The largest template and the deepest nesting the parser accepts.
inline constexpr std::size_t kMaxTemplateBytes = 1u << 20;
inline constexpr int kMaxExpressionDepth = 400;
inline constexpr int kMaxBlockDepth = 100;

}  // namespace moeflux::jinja
