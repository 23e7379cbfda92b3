#include "source/packed_experts.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxLayoutBytes = 64u << 10;

// "gate.weight" and "gate_proj.weight" are the same part.
std::string canonical_part_name(std::string name) {
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos && !name.substr(0, dot).ends_with("_proj"))
    name.insert(dot, "_proj");
  return name;
}

void check_component(const PackedBlob& blob, const Json& component, const std::string& origin) {
  const JsonFields fields(component, origin);
  const std::string name = fields.string("name");
  const auto part = std::find_if(
      blob.parts.begin(), blob.parts.end(),
      [&](const PackedPart& candidate) { return candidate.name == canonical_part_name(name); });
  if (part == blob.parts.end()) {
    fail(Errc::BadInput, "{}: \"{}\" is not a part of an expert", origin, name.substr(0, 80));
  }
  const std::int64_t offset = fields.integer("offset", 0, INT64_MAX);
  const std::int64_t size = fields.integer("size", 0, INT64_MAX);
  if (static_cast<std::uint64_t>(offset) != part->offset ||
      static_cast<std::uint64_t>(size) != part->bytes) {
    fail(Errc::BadInput,
         "{}: \"{}\" has {} bytes at {}, but the config and {} bits put {} bytes at {}", origin,
         name, size, offset, blob.bits, part->bytes, part->offset);
  }
}

// A layout.json that disagrees means that config and experts belong to different models.
void check_layout(const std::string& path, const ExpertSizes& sizes, const PackedBlob& blob) {
  const Json layout = read_json_file(path, kMaxLayoutBytes);
  const JsonFields fields(layout, path);
  const std::int64_t size = fields.integer("expert_size", 0, INT64_MAX);
  if (static_cast<std::uint64_t>(size) != blob.bytes) {
    fail(Errc::BadInput,
         "{}: \"expert_size\" is {}, but the config and the size of the layer files make it {} "
         "({}-bit)",
         path, size, blob.bytes, blob.bits);
  }
  const std::int64_t n_experts = fields.integer_or("num_experts", sizes.n_experts, 0, INT64_MAX);
  if (n_experts != sizes.n_experts) {
    fail(Errc::BadInput, "{}: \"num_experts\" is {}, but the config says {}", path, n_experts,
         sizes.n_experts);
  }
  const Json* components = fields.find("components");
  if (components == nullptr) return;
  if (!components->is_array()) fail(Errc::BadInput, "{}: \"components\" must be an array", path);
  for (const Json& component : *components) check_component(blob, component, path + ": components");
}

// Only one of the known blob sizes can be right, whatever the directory is called: codes of the
// wrong width would decode to plausible nonsense.
PackedBlob blob_for_file(const File& file, const ExpertSizes& sizes) {
  const auto n = static_cast<std::uint64_t>(sizes.n_experts);
  PackedBlob four = packed_blob(sizes, 4);
  PackedBlob two = packed_blob(sizes, 2);
  if (file.size() == n * four.bytes) return four;
  if (file.size() == n * two.bytes) return two;
  fail(Errc::BadInput,
       "{}: has {} bytes, but {} experts of {} x {} in groups of {} take {} (4-bit) or {} (2-bit); "
       "it is truncated or belongs to another model",
       file.path(), file.size(), sizes.n_experts, sizes.d_ff, sizes.d_model, sizes.group,
       n * four.bytes, n * two.bytes);
}

}  // namespace

PackedBlob packed_blob(const ExpertSizes& sizes, int bits) {
  PackedBlob blob{.bits = bits, .bytes = 0, .parts = {}};
  const auto add = [&](std::string name, DType dtype, std::int64_t rows, std::int64_t cols) {
    const auto bytes = static_cast<std::uint64_t>(rows * cols) * dtype_size(dtype);
    blob.parts.push_back({std::move(name), dtype, {rows, cols}, blob.bytes, bytes});
    blob.bytes += bytes;
  };
  const auto add_projection = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", DType::U32, rows, cols * bits / 32);
    add(name + ".scales", DType::BF16, rows, cols / sizes.group);
    add(name + ".biases", DType::BF16, rows, cols / sizes.group);
  };
  add_projection("gate_proj", sizes.d_ff, sizes.d_model);
  add_projection("up_proj", sizes.d_ff, sizes.d_model);
  add_projection("down_proj", sizes.d_model, sizes.d_ff);
  return blob;
}

void add_packed_layer(ModelSource& source, const std::string& path, const std::string& module,
                      const ExpertSizes& sizes, const std::string& layout) {
  File file(path);
  const PackedBlob blob = blob_for_file(file, sizes);
  if (!layout.empty()) check_layout(layout, sizes, blob);
  const int index = source.add_file(std::move(file));
  for (const PackedPart& part : blob.parts) {
    TensorInfo tensor{.dtype = part.dtype,
                      .shape = part.shape,
                      .file = index,
                      .offset = part.offset,
                      .bytes = part.bytes * static_cast<std::uint64_t>(sizes.n_experts),
                      .slice_stride = blob.bytes};
    tensor.shape.insert(tensor.shape.begin(), sizes.n_experts);
    source.add_tensor(module + part.name, std::move(tensor));
  }
}

}  // namespace moeflux
