#include "source/model_identity.h"

#include <algorithm>
#include <filesystem>
#include <new>

#include <fmt/format.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same functions, in the best instructions this processor has
#else
#include <xxhash.h>
#endif

namespace moeflux {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kMaxBlocks = 1024;

// XXH3-128 (seed 0) over bytes that come in pieces.
class Digest {
 public:
  Digest() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// "model.layers.17.mlp.experts.3.up_proj" -> "model.layers.#.mlp.experts.#.up_proj"
std::string kind_of(std::string_view name) {
  std::string kind;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) kind += c;
    if (digit && !kind.ends_with('#')) kind += '#';
  }
  return kind;
}

using Kinds = std::map<std::string, std::vector<const TensorInfo*>>;

Kinds kinds_of(const ModelSource& source) {
  Kinds kinds;
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.bytes > 0) kinds[kind_of(name)].push_back(&tensor);
  }
  return kinds;
}

// A block of the tensor, or all of a smaller run: the part-th of n_parts, from its first to its
// last byte. Slices that lie apart are sampled one by one.
void add_block(Digest& digest, const ModelSource& source, const TensorInfo& tensor,
               std::uint64_t part, std::uint64_t n_parts) {
  const std::uint64_t run_bytes = tensor.contiguous() ? tensor.bytes : tensor.slice_bytes();
  const std::uint64_t slice = tensor.bytes / run_bytes * part / n_parts;  // 0 of a contiguous one
  const std::uint64_t bytes = std::min(run_bytes, kBlockBytes);
  const std::uint64_t within = n_parts > 1 ? (run_bytes - bytes) / (n_parts - 1) * part : 0;
  std::byte block[kBlockBytes];
  const std::span<std::byte> out(block, static_cast<std::size_t>(bytes));
  source.read({tensor.file, tensor.offset + slice * tensor.slice_stride + within, bytes}, out);
  digest.add(out);
}

// Every kind of tensor has the same number of blocks: whoever tuned only the attention has changed
// few of the tensors of a model with many experts.
void add_samples(Digest& digest, const ModelSource& source) {
  const Kinds kinds = kinds_of(source);
  std::size_t n_left = kinds.size();
  std::uint64_t blocks_left = kMaxBlocks;
  for (const auto& [kind, tensors] : kinds) {
    const std::uint64_t share = blocks_left / n_left--;
    if (share == 0) continue;
    const std::uint64_t n = tensors.size();
    const std::uint64_t n_sampled = std::min(share, n), n_each = share / n_sampled;
    for (std::uint64_t i = 0; i < n_sampled; ++i) {
      const TensorInfo& tensor = *tensors[static_cast<std::size_t>(i * n / n_sampled)];
      const std::uint64_t n_blocks =
          std::min(n_each, (tensor.bytes + kBlockBytes - 1) / kBlockBytes);
      for (std::uint64_t part = 0; part < n_blocks; ++part)
        add_block(digest, source, tensor, part, n_blocks);
      blocks_left -= n_blocks;
    }
  }
}

void add_index(Digest& digest, const ModelSource& source) {
  for (int i = 0; i < source.n_files(); ++i) {
    const SourceFile& file = source.file(i);
    digest.add(fmt::format("{} {}\n", std::filesystem::path(file.path()).filename().string(),
                           file.size()));
  }
  for (const auto& [name, tensor] : source.tensors()) {
    digest.add(fmt::format("{} {} {} {} {} {}\n", name, dtype_name(tensor.dtype),
                           shape_text(tensor.shape), tensor.file, tensor.offset,
                           tensor.slice_stride));
  }
}

}  // namespace

std::string model_identity(const ModelSource& source) {
  Digest digest;
  digest.add(fmt::format("{}\n{}\n{}\n{}\n", layout_name(source.layout()),
                         layout_name(source.conventions()), source.fingerprint(),
                         dump_json(source.config())));
  if (source.fingerprint().empty()) {
    add_index(digest, source);
    add_samples(digest, source);
  }
  return digest.text();
}

}  // namespace moeflux
