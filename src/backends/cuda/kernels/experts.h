// What find_experts takes: the device's side of backends/expert_table.h.
#pragma once

#include "backends/cuda/kernels/matvec.h"

namespace moeflux::gpu {

inline constexpr int kWordsOfPlace = 9;  // of 8 bytes: an ExpertPlace
inline constexpr std::uint64_t kNoPlane = ~std::uint64_t{0};
// Words of 4 bytes of an ExpertMailbox, `asked` being the first.
inline constexpr int kBankWord = 1, kRoundWord = 2, kNeededWord = 3;
inline constexpr int kAnsweredWord = 16, kFailedWord = 17;

struct FindExpertsParams {
  const std::int32_t* ids;  // [pair]
  const std::uint64_t* places;
  std::uint64_t slots;     // what places are counted from
  std::uint32_t* mailbox;  // null: what is missing is left out
  std::int32_t* needed;    // of the mailbox
  std::int32_t* round;     // 0 between operations
  std::uint64_t* found;    // [pair][kWordsOfPlace]: addresses, FoundExpert
  std::int32_t n_pairs, bank;
};

}  // namespace moeflux::gpu
