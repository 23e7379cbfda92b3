// The aligned memory of a reader that is not its caller's: two edge blocks for each read in flight,
// and some bounce buffers shared by them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"
#include "io/file_set.h"
#include "base/aligned_buffer.h"
#include "io/read_plan.h"

namespace moeflux {

inline constexpr std::size_t kBounceBytes = std::size_t{512} << 10;

// In place, the kernel gets whole ops; the limit keeps one below the largest read it accepts (2 GiB
// less a page).
inline constexpr PlanLimits kPlanLimits{.bounce_bytes = kBounceBytes,
                                        .piece_bytes = std::size_t{1} << 30};

class Scratch {
 public:
  Scratch(const FileSet& files, int n_slots, std::size_t bounce_bytes)
      : edge_bytes_(2 * files.largest_block()) {
    if (files.n_direct() == 0) return;  // buffered reads need none
    edges_ = AlignedBuffer(edge_bytes_ * static_cast<std::size_t>(n_slots));
    const std::size_t n_bounces =
        std::clamp<std::size_t>(bounce_bytes / kBounceBytes, 1, static_cast<std::size_t>(n_slots));
    bounces_ = HugeBuffer(n_bounces * kBounceBytes);
  }

  std::span<std::byte> edges(int slot) const {
    if (edges_.size() == 0) return {};
    return {edges_.data() + static_cast<std::size_t>(slot) * edge_bytes_, edge_bytes_};
  }
  std::span<std::byte> bounce(int index) const {
    return {bounces_.data() + static_cast<std::size_t>(index) * kBounceBytes, kBounceBytes};
  }
  int n_bounces() const { return static_cast<int>(bounces_.size() / kBounceBytes); }
  std::size_t bytes() const { return edges_.size() + bounces_.size(); }

 private:
  std::size_t edge_bytes_;
  AlignedBuffer edges_;
  HugeBuffer bounces_;
};

}  // namespace moeflux
