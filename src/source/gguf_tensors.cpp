#include "source/gguf_tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

struct PlainType {
  std::uint32_t id;
  DType dtype;
};
constexpr std::array<PlainType, 7> kPlainTypes{{
    {0, DType::F32},
    {1, DType::F16},
    {30, DType::BF16},
    {24, DType::I8},
    {25, DType::I16},
    {26, DType::I32},
    {27, DType::I64},
}};

// The type of a tensor; nothing when it is none that is read.
std::optional<TensorInfo> typed(const GgufTensor& tensor) {
  TensorInfo info;
  info.shape = tensor.shape;
  if (const auto blocks = block_type_of_gguf(tensor.type)) {
    info.dtype = DType::U8;
    info.blocks = *blocks;
    return info;
  }
  const auto* const plain =
      std::find_if(kPlainTypes.begin(), kPlainTypes.end(),
                   [&](const PlainType& each) { return each.id == tensor.type; });
  if (plain == kPlainTypes.end()) return std::nullopt;
  info.dtype = plain->dtype;
  return info;
}

// The last byte that a tensor needs; throws Error when the file ends before it.
void check_end(const GgufHeader& part, const std::vector<PlacedTensor>& placed) {
  std::uint64_t end = 0;
  const GgufTensor* last = nullptr;
  for (const PlacedTensor& each : placed) {
    if (!each.info) continue;
    std::uint64_t its_end = 0;
    if (__builtin_add_overflow(each.info->offset, each.info->bytes, &its_end)) {
      fail(Errc::BadInput, "{}: tensor \"{}\" ends behind any file; it is damaged", part.path(),
           each.tensor->name);
    }
    if (last != nullptr && its_end <= end) continue;
    last = each.tensor;
    end = its_end;
  }
  const std::uint64_t size = part.file().size();
  if (last == nullptr || end <= size) return;
  fail(Errc::BadInput,
       "{}: truncated: tensor \"{}\" ends at byte {}, but the file has only {}: {} bytes are "
       "missing; fetch the rest",
       part.path(), last->name, end, size, end - size);
}

void refuse_overlaps(const GgufHeader& part, const std::vector<PlacedTensor>& placed) {
  std::vector<const PlacedTensor*> in_order;
  for (const PlacedTensor& each : placed)
    if (each.info && each.info->bytes > 0) in_order.push_back(&each);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto* a, const auto* b) { return a->info->offset < b->info->offset; });
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    const PlacedTensor &a = *in_order[i - 1], &b = *in_order[i];
    if (a.info->offset + a.info->bytes > b.info->offset) {
      fail(Errc::BadInput, "{}: the tensors \"{}\" and \"{}\" overlap; it is damaged", part.path(),
           a.tensor->name, b.tensor->name);
    }
  }
}

}  // namespace

std::vector<PlacedTensor> place_gguf_tensors(const GgufHeader& part, int file) {
  std::vector<PlacedTensor> placed;
  for (const GgufTensor& tensor : part.tensors()) {
    std::optional<TensorInfo> info = typed(tensor);
    if (info) {
      info->file = file;
      info->offset = part.data_begin() + tensor.offset;
      info->bytes = stored_bytes(part.path(), tensor.name, *info);
    }
    placed.push_back({&tensor, std::move(info)});
  }
  check_end(part, placed);
  refuse_overlaps(part, placed);
  return placed;
}

}  // namespace moeflux
