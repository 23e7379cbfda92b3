#include "experts/expert_store.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::size_t kPlaneAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment; }

std::size_t slot_size(const StoredMatrix& m) {
  return aligned(m.data.bytes) + aligned(m.scales.bytes) + aligned(m.biases.bytes);
}

}  // namespace

ExpertStore::ExpertStore(std::shared_ptr<const ModelSource> source, std::vector<ExpertBank> banks)
    : source_(std::move(source)), banks_(std::move(banks)) {
  for (const ExpertBank& bank : banks_) {
    for (int e = 0; e < bank.gate.count(); ++e) {
      slot_bytes_ =
          std::max(slot_bytes_, slot_size(bank.gate.at(e)) + slot_size(bank.up.at(e)) + slot_size(bank.down.at(e)));
    }
    n_total_ += static_cast<std::uint64_t>(bank.gate.count());
  }
}

std::uint64_t ExpertStore::bytes(ExpertKey key) const {
  const ExpertBank& bank = banks_[static_cast<std::size_t>(key.bank)];
  return bank.gate.at(key.expert).bytes() + bank.up.at(key.expert).bytes() + bank.down.at(key.expert).bytes();
}

ExpertView ExpertStore::read(ExpertKey key, std::byte* slot) const {
  const ExpertBank& bank = banks_[static_cast<std::size_t>(key.bank)];
  std::byte* at = slot;
  const auto plane = [&](const Extent& extent) -> const std::byte* {
    if (extent.bytes == 0) return nullptr;
    std::byte* begin = at;
    source_->read(extent, {begin, extent.bytes});
    at += aligned(extent.bytes);
    return begin;
  };
  const auto matrix = [&](const StoredMatrix& m) {
    WeightView view{.format = m.format, .rows = m.rows, .cols = m.cols, .block_row0 = m.block_row0};
    view.data = plane(m.data);
    view.scales = plane(m.scales);
    view.biases = plane(m.biases);
    return view;
  };
  ExpertView view;
  view.gate = matrix(bank.gate.at(key.expert));
  view.up = matrix(bank.up.at(key.expert));
  view.down = matrix(bank.down.at(key.expert));
  MOEFLUX_ASSERT(at <= slot + slot_bytes_);
  return view;
}

}  // namespace moeflux
