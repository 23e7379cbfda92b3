#include "io/read_plan.h"

#include <bit>
#include <limits>

namespace moeflux {

bool lands_in_place(std::uint64_t offset, const std::byte* out, const FileAlignment& alignment) {
  const std::uint64_t to_block = round_up(offset, alignment.offset) - offset;
  return (std::bit_cast<std::uintptr_t>(out) + to_block) % alignment.memory == 0;
}

Route choose_route(const ReadOp& op, const FileAlignment& alignment) {
  if (!alignment.direct()) return Route::Buffered;
  const bool short_read = fits_edges(op.offset, op.out.size(), alignment);
  if (short_read || lands_in_place(op.offset, op.out.data(), alignment)) return Route::Direct;
  return Route::Bounced;
}

bool out_of_range(const ReadOp& op) {
  // One block less than the largest offset, so that rounding up cannot overflow either.
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max() - (1 << 20);
  return op.out.size() > kLargest || op.offset > kLargest - op.out.size();
}

}  // namespace moeflux
