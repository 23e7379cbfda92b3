// Looking experts up (backends/expert_table.h).
#pragma once

#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/gpu.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// By all threads of one block. Waits for the host where experts are missing.
GPU_INLINE void find_pairs(const FindExpertsParams& p) {
  GPU_SHARED int n_missing;
  while (true) {
    if (thread() == 0) n_missing = 0;
    sync();
    // All words at once: the table lies in the host's memory, and each look takes a while.
    for (int i = thread(); i < p.n_pairs * kWordsOfPlace; i += n_threads()) {
      const int pair = i / kWordsOfPlace, word = i - pair * kWordsOfPlace;
      const std::uint64_t offset =
          load_volatile(p.places + std::int64_t{p.ids[pair]} * kWordsOfPlace + word);
      p.found[i] = offset == kNoPlane ? 0 : p.slots + offset;
      if (word == 0 && offset == kNoPlane) add_atomically(&n_missing, 1);
    }
    sync();
    const bool is_done =
        p.mailbox == nullptr || n_missing == 0 || load_acquire(p.mailbox + kFailedWord) != 0;
    if (is_done) break;
    if (thread() == 0) {
      std::uint32_t n_needed = 0;
      for (int pair = 0; pair < p.n_pairs; ++pair) {
        bool is_first = true;
        for (int before = 0; before < pair; ++before) is_first &= p.ids[before] != p.ids[pair];
        if (is_first) p.needed[n_needed++] = p.ids[pair];
      }
      auto* words = const_cast<volatile std::uint32_t*>(p.mailbox);
      words[kBankWord] = static_cast<std::uint32_t>(p.bank);
      words[kRoundWord] = static_cast<std::uint32_t>(*p.round);
      words[kNeededWord] = n_needed;
      *p.round += 1;
      const std::uint32_t ticket = load_acquire(p.mailbox) + 1;
      store_release(p.mailbox, ticket);
      while (load_acquire(p.mailbox + kAnsweredWord) != ticket &&
             load_acquire(p.mailbox + kFailedWord) == 0)
        rest();
    }
    sync();
  }
  if (thread() == 0) *p.round = 0;
}

}  // namespace moeflux::gpu
GPU_CODE_END
