#include "source/gguf_fields.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr int kMaxSize = 1 << 24;
constexpr int kMaxBlockCount = 4096;
constexpr std::uint32_t kF32 = 0;  // as GGUF numbers it
constexpr std::int64_t kMaxFloats = 1 << 16;

constexpr std::array<std::string_view, 15> kTellingParts{
    "rope",   "attention", "attn", "window", "softcap", "scal", "norm",  "clamp",
    "gating", "expert",    "moe",  "ssm",    "layer",   "swa",  "causal"};

bool tells_of_the_model(std::string_view key) {
  return std::any_of(kTellingParts.begin(), kTellingParts.end(), [&](std::string_view part) {
    return key.find(part) != std::string_view::npos;
  });
}

}  // namespace

GgufFields::GgufFields(const GgufHeader& header, std::string_view architecture,
                       const GgufTensors& tensors)
    : header_(header), prefix_(std::string(architecture) + "."), tensors_(tensors) {
  n_blocks_ = static_cast<int>(header_.integer(name("block_count"), 1, kMaxBlockCount));
  if (static_cast<std::size_t>(n_blocks_) > tensors_.size()) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, but there are only {} tensors", path(),
         name("block_count"), n_blocks_, tensors_.size());
  }
  n_mtp_ = static_cast<int>(header_.integer_or(name("nextn_predict_layers"), 0, 0, n_blocks_ - 1));
}

std::string GgufFields::name(std::string_view key) const {
  std::string full = prefix_ + std::string(key);
  read_.insert(full);
  return full;
}

bool GgufFields::has(std::string_view key) const {
  return header_.has(name(key));
}

int GgufFields::size(std::string_view key) const {
  return static_cast<int>(header_.integer(name(key), 1, kMaxSize));
}

int GgufFields::size_or(std::string_view key, int fallback) const {
  return has(key) ? size(key) : fallback;
}

int GgufFields::count_or(std::string_view key, int fallback) const {
  return static_cast<int>(header_.integer_or(name(key), fallback, 0, kMaxSize));
}

double GgufFields::number(std::string_view key) const {
  return header_.number(name(key));
}

double GgufFields::number_or(std::string_view key, double fallback) const {
  return header_.number_or(name(key), fallback);
}

bool GgufFields::boolean_or(std::string_view key, bool fallback) const {
  return header_.boolean_or(name(key), fallback);
}

std::string GgufFields::string_or(std::string_view key, std::string fallback) const {
  return header_.string_or(name(key), std::move(fallback));
}

std::vector<std::int64_t> GgufFields::list(std::string_view key) const {
  const std::string full = name(key);
  const std::uint64_t count = header_.count(full);
  const auto blocks = static_cast<std::uint64_t>(n_blocks_);
  if (header_.is_list(full) && count != blocks && count != static_cast<std::uint64_t>(n_layers())) {
    fail(Errc::BadInput, "{}: \"{}\" has {} values for {} blocks", path(), full, count, n_blocks_);
  }
  return header_.integers(full);
}

std::vector<std::int64_t> GgufFields::by_layer(std::string_view key) const {
  std::vector<std::int64_t> values = list(key);
  values.resize(static_cast<std::size_t>(n_layers()), values.front());
  return values;
}

int GgufFields::size_of_layers(std::string_view key) const {
  const std::vector<std::int64_t> values = by_layer(key);
  const std::int64_t first = values.front();
  const auto other = std::find_if(values.begin(), values.end(),
                                  [&](std::int64_t value) { return value != first; });
  if (other != values.end()) {
    fail(Errc::Unsupported, "{}: \"{}\" differs between layers ({} and {}), which is not supported",
         path(), name(key), first, *other);
  }
  if (first < 1 || first > kMaxSize) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, outside of 1 to {}", path(), name(key), first,
         kMaxSize);
  }
  return static_cast<int>(first);
}

void GgufFields::ignore(std::string_view key) const {
  read_.insert(prefix_ + std::string(key));
}

void GgufFields::require(std::string_view key, double value) const {
  if (!has(key) || number(key) == value) return;
  fail(Errc::Unsupported, "{}: \"{}\": {} is not supported for this architecture (supported: {})",
       path(), name(key), number(key), value);
}

const GgufTensor* GgufFields::find_tensor(std::string_view tensor) const {
  const auto it = tensors_.find(tensor);
  return it == tensors_.end() ? nullptr : it->second.tensor;
}

const GgufTensor& GgufFields::need_tensor(std::string_view tensor) const {
  const GgufTensor* found = find_tensor(tensor);
  if (found == nullptr) fail(Errc::NotFound, "{}: tensor \"{}\" is missing", path(), tensor);
  return *found;
}

std::vector<float> GgufFields::read_floats(std::string_view tensor) const {
  const auto& [vector, file] = tensors_.find(tensor)->second;
  const std::int64_t n = vector->shape.empty() ? 0 : vector->shape.front();
  if (vector->type != kF32 || vector->shape.size() != 1 || n < 1 || n > kMaxFloats) {
    fail(Errc::BadInput, "{}: tensor \"{}\" is no F32 vector of 1 to {} numbers", file->path(),
         tensor, kMaxFloats);
  }
  std::vector<float> values(static_cast<std::size_t>(n));
  file->file().read(file->data_begin() + vector->offset, std::as_writable_bytes(std::span(values)));
  return values;
}

bool GgufFields::is_delta(int block) const {
  return find_tensor(fmt::format("blk.{}.ssm_conv1d.weight", block)) != nullptr;
}

bool GgufFields::layers_have(std::string_view tensor) const {
  for (int i = 0; i < n_layers(); ++i)
    if (find_tensor(fmt::format("blk.{}.{}", i, tensor)) != nullptr) return true;
  return false;
}

void GgufFields::refuse_unread() const {
  for (const std::string& key : header_.keys()) {
    if (!key.starts_with(prefix_) || read_.contains(key)) continue;
    if (!tells_of_the_model(std::string_view(key).substr(prefix_.size()))) continue;
    fail(Errc::Unsupported, "{}: the key \"{}\" is not known for this architecture", path(), key);
  }
}

}  // namespace moeflux
