// The routed experts of a layer, looked up by the device (backends/expert_table.h).
//
// Of few rows, the device finds them and waits for the host by itself, so that a pass can be one
// graph. Of many rows, or where they may not all fit at once, the host drives it in rounds: what is
// there is computed while the rest is on its way.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

static_assert(sizeof(ExpertPlace) == gpu::kWordsOfPlace * sizeof(std::uint64_t));
static_assert(sizeof(ExpertPlace) == sizeof(gpu::FoundExpert));
static_assert(Weight::kNoPlane == gpu::kNoPlane);
static_assert(offsetof(ExpertMailbox, bank) == 4 * gpu::kBankWord);
static_assert(offsetof(ExpertMailbox, round) == 4 * gpu::kRoundWord);
static_assert(offsetof(ExpertMailbox, n_needed) == 4 * gpu::kNeededWord);
static_assert(offsetof(ExpertMailbox, answered) == 4 * gpu::kAnsweredWord);
static_assert(offsetof(ExpertMailbox, failed) == 4 * gpu::kFailedWord);

const ExpertPlace* places_of(const ExpertsOp& op) {
  return reinterpret_cast<const ExpertPlace*>(op.table.places.buffer->host() +
                                              op.table.places.offset);
}
ExpertMailbox& mailbox_of(const ExpertsOp& op) {
  return *reinterpret_cast<ExpertMailbox*>(op.mailbox.buffer->host() + op.mailbox.offset);
}

std::uint64_t expert_bytes(const ExpertTable& table) {
  std::uint64_t bytes = 0;
  for (const Weight* w : {&table.gate, &table.up, &table.down}) {
    bytes += static_cast<std::uint64_t>(w->rows * data_row_bytes(w->format, w->cols) +
                                        scale_bytes(w->format, w->rows, w->cols, w->block_row0) +
                                        bias_bytes(w->format, w->rows, w->cols));
  }
  return bytes;
}

}  // namespace

void CudaBackend::experts(const ExpertsOp& op) {
  if (op.h.rows == 0) return;
  note_rows(op.h.rows);
  if (op.mailbox.empty()) return experts_that_are_there(op, place_words(op.table.places));
  const auto n_pairs = static_cast<std::uint64_t>(op.ids.size());
  // Slots of other sizes share the buffer, and some hold what is on its way.
  const bool surely_fit = 4 * n_pairs * expert_bytes(op.table) <= op.table.slots->bytes();
  if (op.h.rows <= kFewRows && surely_fit) return experts_of_few_rows(op);
  settle();  // the host looks at what was chosen
  const ExpertPlace* places = places_of(op);
  const bool all_there = std::none_of(places, places + op.spec->n_experts,
                                      [](const ExpertPlace& place) { return place.missing(); });
  if (!all_there) return experts_in_rounds(op);
  experts_that_are_there(op, place_words(op.table.places));
}

void CudaBackend::experts_that_are_there(const ExpertsOp& op, const std::uint64_t* places) {
  if (op.h.rows > kFewRows) return experts_of_many_rows(op, places);
  settle();
  launch("find_experts", find_params(op, places, false), {.threads = 256});
  hidden_of_pairs(op, {});
  results_of_pairs(op);
}

const std::uint64_t* CudaBackend::place_words(const Bytes& places) {
  return reinterpret_cast<const std::uint64_t*>(address(places));
}

gpu::FindExpertsParams CudaBackend::find_params(const ExpertsOp& op, const std::uint64_t* places,
                                                bool asks) {
  auto p = zeroed<gpu::FindExpertsParams>();
  p.ids = ints(op.ids);
  p.places = places;
  p.slots = address(op.table.slots, 0);
  p.mailbox = asks ? reinterpret_cast<std::uint32_t*>(address(op.mailbox)) : nullptr;
  p.needed = reinterpret_cast<std::int32_t*>(address(op.mailbox) + sizeof(ExpertMailbox));
  const CUdeviceptr memory = found_memory();
  p.round = reinterpret_cast<std::int32_t*>(memory);
  p.found = reinterpret_cast<std::uint64_t*>(memory + kFoundAt);
  p.n_pairs = static_cast<std::int32_t>(op.ids.size());
  p.bank = op.bank;
  return p;
}

const gpu::FoundExpert* CudaBackend::found() {
  return reinterpret_cast<const gpu::FoundExpert*>(found_memory() + kFoundAt);
}

CUdeviceptr CudaBackend::found_memory() {
  if (found_ == 0) {
    constexpr std::size_t kBytes = kFoundAt + kMostPairs * sizeof(gpu::FoundExpert);
    MOEFLUX_CUDA(driver_, cuMemAlloc, &found_, kBytes);
    MOEFLUX_CUDA(driver_, cuMemsetD8Async, found_, 0, kBytes, device_.compute());
  }
  return found_;
}

// The device's side of the mailbox, played by the host between launches.
void CudaBackend::experts_in_rounds(const ExpertsOp& op) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(op.ids.size()));
  download(op.ids.bytes(), std::as_writable_bytes(std::span(ids)));
  wait_for_all();
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());

  ExpertMailbox& box = mailbox_of(op);
  const ExpertPlace* places = places_of(op);
  const auto n_experts = static_cast<std::size_t>(op.spec->n_experts);
  std::vector<ExpertPlace> chosen;  // this round's experts, all others missing
  std::vector<std::int32_t> needed = ids;
  for (int round = 0; !needed.empty(); ++round) {
    if (box.failed.load(std::memory_order_acquire) != 0) return;
    chosen.assign(n_experts, {});
    std::vector<std::int32_t> missing;
    for (const std::int32_t e : needed) {
      const auto at = static_cast<std::size_t>(e);
      if (places[at].missing())
        missing.push_back(e);
      else
        chosen[at] = places[at];
    }
    const std::uint32_t ticket = box.asked.load(std::memory_order_relaxed) + 1;
    if (!missing.empty()) {
      box.bank = op.bank;
      box.round = round;
      box.n_needed = static_cast<std::int32_t>(needed.size());
      std::copy(needed.begin(), needed.end(), box.needed());
      box.asked.store(ticket, std::memory_order_release);
    }
    if (missing.size() < needed.size()) {
      const std::size_t bytes = n_experts * sizeof(ExpertPlace);
      if (round_places_ == nullptr || round_places_->bytes() < bytes)
        round_places_ = allocate(bytes, MemoryKind::Device, Backing::Touched);
      const Bytes run{round_places_.get(), 0, bytes};
      upload(std::as_bytes(std::span(chosen)), run);
      experts_that_are_there(op, place_words(run));
      wait_for_all();  // once answered, these slots may be given to others
    }
    needed = missing;
    while (!missing.empty() && box.answered.load(std::memory_order_acquire) != ticket) {
      if (box.failed.load(std::memory_order_acquire) != 0) return;
      if (poll_) poll_();
    }
  }
}

}  // namespace moeflux::cuda
