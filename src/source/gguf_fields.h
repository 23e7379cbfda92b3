// The keys of one architecture in the header of a GGUF file: "qwen3moe.block_count", ... It
// remembers which were read, because a key that says something of the model and that nobody reads
// would be a silently wrong model.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/gguf_header.h"

namespace moeflux {

// By name, of all files of a model, with the file that each is in.
struct GgufTensorOf {
  const GgufTensor* tensor;
  const GgufHeader* file;
};
using GgufTensors = std::map<std::string, GgufTensorOf, std::less<>>;

class GgufFields {
 public:
  // All outlive this.
  GgufFields(const GgufHeader& header, std::string_view architecture, const GgufTensors& tensors);

  const std::string& path() const { return header_.path(); }
  const GgufHeader& header() const { return header_; }
  std::string name(std::string_view key) const;  // "attention.head_count" with its prefix

  bool has(std::string_view key) const;
  int size(std::string_view key) const;  // at least 1
  int size_or(std::string_view key, int fallback) const;
  int count_or(std::string_view key, int fallback) const;  // at least 0
  double number(std::string_view key) const;
  double number_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  // A value that some writers repeat for each layer: which must all have the same.
  int size_of_layers(std::string_view key) const;
  // One for each layer of the trunk; a single one is meant for all.
  std::vector<std::int64_t> by_layer(std::string_view key) const;
  void ignore(std::string_view key) const;  // it says nothing that matters here
  // Throws Unsupported unless the number is missing or this.
  void require(std::string_view key, double value) const;

  // Blocks of the file, and those of them that are the trunk: heads for multi-token prediction
  // follow.
  int n_blocks() const { return n_blocks_; }
  int n_layers() const { return n_blocks_ - n_mtp_; }

  const GgufTensor* find_tensor(std::string_view tensor) const;
  const GgufTensor& need_tensor(std::string_view tensor) const;
  // The numbers of a small F32 vector.
  std::vector<float> read_floats(std::string_view tensor) const;
  bool is_delta(int block) const;  // of the gated delta rule
  // Whether any layer has a tensor of that name: "attn_q.bias".
  bool layers_have(std::string_view tensor) const;

  // Throws Unsupported for a key of the architecture that speaks of attention, positions, norms or
  // scales and has not been read.
  void refuse_unread() const;

 private:
  std::vector<std::int64_t> list(std::string_view key) const;

  const GgufHeader& header_;
  std::string prefix_;
  const GgufTensors& tensors_;
  int n_blocks_ = 0, n_mtp_ = 0;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace moeflux
