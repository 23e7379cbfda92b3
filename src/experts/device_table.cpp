#include "experts/device_table.h"

#include <algorithm>
#include <new>

#include "base/error.h"

namespace moeflux {
namespace {

bool alike(const Weight& a, const Weight& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols &&
         a.block_row0 == b.block_row0;
}

Weight shape_of(Weight weight) {
  weight.buffer = nullptr;
  weight.data = weight.scales = weight.biases = Weight::kNoPlane;
  return weight;
}

bool is_aligned(const Weight& w) {
  constexpr std::uint64_t kOfData = 4;
  const auto is_at = [](std::uint64_t plane, std::uint64_t multiple) {
    return plane == Weight::kNoPlane || plane % multiple == 0;
  };
  const std::uint64_t scale = dtype_size(w.format.scale_dtype);
  const std::uint64_t bias = w.format.has_tensor_scale                ? sizeof(float)
                             : w.format.zero == AffineZero::ZeroPoint ? 1
                                                                      : scale;
  return is_at(w.data, kOfData) && is_at(w.scales, scale) && is_at(w.biases, bias);
}

// Slots begin at multiples of ExpertStore::kBlock.
bool has_aligned_experts(const ExpertStore& store, const Buffer& slots, int bank) {
  for (int e = 0; e < store.n_experts(bank); ++e) {
    const ExpertView view = store.view({bank, e}, slots, 0);
    if (!is_aligned(view.gate) || !is_aligned(view.up) || !is_aligned(view.down)) return false;
  }
  return true;
}

}  // namespace

bool DeviceTable::can_describe(const ExpertStore& store, const ExpertCache& cache) {
  for (int bank = 0; bank < store.n_banks(); ++bank) {
    const ExpertView first = store.view({bank, 0}, cache.buffer(), 0);
    for (int e = 1; e < store.n_experts(bank); ++e) {
      const ExpertView other = store.view({bank, e}, cache.buffer(), 0);
      if (!alike(first.gate, other.gate) || !alike(first.up, other.up) ||
          !alike(first.down, other.down)) {
        return false;
      }
    }
  }
  return true;
}

DeviceTable::DeviceTable(const ExpertStore& store, const ExpertCache& cache, Backend& backend)
    : store_(store), cache_(cache) {
  const auto& counts = store.ids().n_experts();
  const auto most = static_cast<std::uint64_t>(*std::max_element(counts.begin(), counts.end()));
  places_ = backend.allocate(store.n_experts_total() * sizeof(ExpertPlace), MemoryKind::Pinned);
  mailbox_ =
      backend.allocate(sizeof(ExpertMailbox) + most * sizeof(std::int32_t), MemoryKind::Pinned);
  for (std::size_t i = 0; i < store.n_experts_total(); ++i) new (&places()[i]) ExpertPlace;
  new (mailbox_->host()) ExpertMailbox{};
  for (int bank = 0; bank < store.n_banks(); ++bank)
    is_aligned_.push_back(has_aligned_experts(store, cache.buffer(), bank));
}

ExpertMailbox& DeviceTable::box() const {
  return *static_cast<ExpertMailbox*>(static_cast<void*>(mailbox_->host()));
}

ExpertPlace* DeviceTable::places() const {
  return static_cast<ExpertPlace*>(static_cast<void*>(places_->host()));
}

ExpertTable DeviceTable::table(int bank) const {
  const ExpertView shapes = store_.view({bank, 0}, cache_.buffer(), 0);
  const auto first = static_cast<std::uint64_t>(store_.id({bank, 0}));
  const auto n = static_cast<std::uint64_t>(store_.n_experts(bank));
  return {.slots = &cache_.buffer(),
          .places = {places_.get(), first * sizeof(ExpertPlace), n * sizeof(ExpertPlace)},
          .gate = shape_of(shapes.gate),
          .up = shape_of(shapes.up),
          .down = shape_of(shapes.down),
          .is_aligned = is_aligned_[static_cast<std::size_t>(bank)]};
}

void DeviceTable::publish(int slot) {
  const ExpertView view = cache_.view(slot);
  ExpertPlace& place = places()[store_.id(cache_.key(slot))];
  std::size_t i = 0;
  for (const Weight* m : {&view.gate, &view.up, &view.down}) {
    place.matrices[i++] = {m->data, m->scales, m->biases};
  }
}

void DeviceTable::withdraw(ExpertKey key) {
  if (has(key)) places()[store_.id(key)] = {};
}

bool DeviceTable::has_request() const {
  return box().asked.load(std::memory_order_acquire) !=
         box().answered.load(std::memory_order_relaxed);
}

DeviceTable::Request DeviceTable::request() const {
  ExpertMailbox& from = box();
  if (from.bank < 0 || from.bank >= store_.n_banks() || from.n_needed <= 0 ||
      from.n_needed > store_.n_experts(from.bank)) {
    moeflux::fail(Errc::BadInput, "the device asked for {} experts of bank {}", from.n_needed,
                  from.bank);
  }
  const std::span<const std::int32_t> needed(from.needed(),
                                             static_cast<std::size_t>(from.n_needed));
  for (const std::int32_t e : needed) {
    if (e < 0 || e >= store_.n_experts(from.bank)) {
      moeflux::fail(Errc::BadInput, "the device asked for expert {} of bank {}", e, from.bank);
    }
  }
  return {from.bank, from.round, needed};
}

void DeviceTable::answer() {
  box().answered.store(box().asked.load(std::memory_order_relaxed), std::memory_order_release);
}

void DeviceTable::fail() {
  box().failed.store(1, std::memory_order_release);
  answer();
}

bool DeviceTable::has_failed() const {
  return box().failed.load(std::memory_order_relaxed) != 0;
}

void DeviceTable::forget_failure() {
  answer();
  box().failed.store(0, std::memory_order_release);
}

}  // namespace moeflux
