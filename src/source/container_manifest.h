// moeflux.json, the manifest of a container (docs/FORMAT.md), as data: what the reader opens and
// the writer lays out. Parsing checks everything the text alone can tell: types, sizes, alignment,
// planes inside their records, nothing overlapping. Whether the files agree is the reader's part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "quant/block_type.h"

namespace moeflux {

// 1: without tiles; 2: no formats besides affine, plain and FP8 in squares; 3: no blocks of GGUF
inline constexpr int kContainerVersion = 4;
inline constexpr std::uint64_t kRecordAlignment = 4096;  // of records, stripes and dense tensors
inline constexpr std::uint64_t kPlaneAlignment = 64;     // of planes in a record
inline constexpr std::uint64_t kMaxContainerRecords = 1u << 23;
inline constexpr std::string_view kManifestFile = "moeflux.json";
inline constexpr std::string_view kChecksumsFile = "checksums.bin";
inline constexpr std::string_view kProgressFile = "convert.progress";

struct ContainerStripe {
  std::string directory;
  std::uint64_t bytes_per_record = 0;
};

struct ContainerFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<ContainerStripe> stripes;  // empty: one file in the container's directory
};

struct ContainerTensor {  // outside of the banks
  std::string name;
  DType dtype = DType::F32;
  BlockType blocks = BlockType::None;  // as of TensorInfo
  std::vector<std::int64_t> shape;
  int file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

// Part of every record of a bank: slice e of the stacked tensor [n_experts, shape...].
struct ContainerPlane {
  std::string tensor;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;  // of one slice
  std::uint64_t offset = 0;         // in the record
  std::uint64_t bytes = 0;
  bool is_interleaved = false;  // of an affine matrix: see quant/interleave.h
  BlockType blocks = BlockType::None;
};

struct ContainerBank {
  int file = 0;
  std::int64_t n_experts = 0;
  std::uint64_t record_bytes = 0;
  std::uint64_t first_checksum = 0;
  std::vector<ContainerPlane> planes;
};

// A file that is no weights: the config, the tokenizer, the template.
struct ContainerText {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

struct ContainerManifest {
  std::string fingerprint;
  std::string source_layout;
  std::string converted_by;
  std::vector<ContainerFile> files;
  std::vector<ContainerTensor> tensors;
  std::vector<ContainerBank> banks;
  std::vector<ContainerText> texts;  // of older containers none

  std::uint64_t n_records() const;
  // The lowest version whose readers know all planes.
  int version() const;
};

// Throws Error with `origin` in its message.
ContainerManifest parse_manifest(std::string_view json, const std::string& origin);
std::string manifest_text(const ContainerManifest& manifest);

// `checksums` are those of the records, as in checksums.bin.
std::string container_fingerprint(const ContainerManifest& manifest,
                                  std::span<const std::uint64_t> checksums);

// The content of checksums.bin.
std::string checksums_file(std::span<const std::uint64_t> checksums);
// Throws Error unless the file has exactly n checksums.
std::vector<std::uint64_t> read_checksums(const std::string& path, std::uint64_t n);

// Bytes of a tensor without gaps; throws Error for a shape that no file can hold.
std::uint64_t tensor_bytes(DType dtype, BlockType blocks, std::span<const std::int64_t> shape,
                           const std::string& what);
// "BF16", and "q4_k" of a tensor in blocks.
std::string_view element_name(DType dtype, BlockType blocks);

constexpr std::uint64_t round_up_to(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace moeflux
