// A checkpoint as an index: its config, where each tensor lies, and its text files. Every layout
// (Hugging Face and MLX safetensors, GGUF, the flash-moe directory, our own container) is opened
// into this one type by its own reader; nothing after it knows the layout. Immutable after open,
// safe to share between threads.
//
// Invariant, established by add_tensor(): every tensor lies inside its file and has exactly the
// bytes its shape needs.
//
// Files have two numberings. Extents speak of files as the checkpoint has them (file()); one of
// those may be striped over several files on disk (disk_file()). read() hides the difference;
// locate() resolves it for whoever reads the disk by other means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "model/stored_tensor.h"
#include "quant/block_type.h"

namespace moeflux {

// A file as extents see it: usually one file on disk; in a striped container a sequence of records
// whose bytes are split over several files, so that one record is read from several drives at once
// (docs/FORMAT.md). Thread-safe: reads are positional.
class SourceFile {
 public:
  struct Stripe {
    File file;
    std::uint64_t bytes_per_record = 0;
  };

  // NOLINTNEXTLINE(google-explicit-constructor): a plain file is the usual source file
  SourceFile(File file);
  // `path` names it in messages. Throws Error when a stripe does not hold exactly its share of the
  // records.
  SourceFile(std::string path, std::uint64_t n_records, std::vector<Stripe> stripes);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  bool striped() const { return stripes_.size() > 1; }

  // The files on disk.
  int n_parts() const { return static_cast<int>(stripes_.size()); }
  const File& part(int index) const { return stripes_[static_cast<std::size_t>(index)].file; }

  // Calls visit(part, offset in it, bytes) for the runs on disk that make up [offset, offset +
  // bytes), in that order.
  template <class Visit>
  void for_each_piece(std::uint64_t offset, std::uint64_t bytes, Visit visit) const;

  // Fills `out`. Throws Error(Io) naming the file on disk.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::uint64_t size_ = 0;
  std::uint64_t record_bytes_ = 0;  // of a plain file: all of it
  std::vector<Stripe> stripes_;
};

template <class Visit>
void SourceFile::for_each_piece(std::uint64_t offset, std::uint64_t bytes, Visit visit) const {
  if (!striped()) {
    if (bytes > 0) visit(0, offset, bytes);
    return;
  }
  while (bytes > 0) {
    const std::uint64_t record = offset / record_bytes_;
    std::uint64_t within = offset % record_bytes_;
    int index = 0;
    while (within >= stripes_[static_cast<std::size_t>(index)].bytes_per_record) {
      within -= stripes_[static_cast<std::size_t>(index)].bytes_per_record;
      ++index;
    }
    const std::uint64_t share = stripes_[static_cast<std::size_t>(index)].bytes_per_record;
    const std::uint64_t run = share - within < bytes ? share - within : bytes;
    visit(index, record * share + within, run);
    offset += run;
    bytes -= run;
  }
}

struct TensorInfo {
  DType dtype = DType::F32;
  // Of a GGUF tensor in blocks, whose dtype is U8 and whose shape counts numbers, not bytes.
  BlockType blocks = BlockType::None;
  std::vector<std::int64_t> shape;
  int file = -1;
  std::uint64_t offset = 0;  // of the first element, from the start of the file
  std::uint64_t bytes = 0;   // of all elements
  // Bytes from index i to index i+1 of the first dimension. More than a slice's own bytes where
  // slices of several tensors are interleaved in one file (packed experts). A reader may leave 0
  // for a tensor without gaps; add_tensor() fills it in.
  std::uint64_t slice_stride = 0;
  bool is_interleaved =
      false;  // each slice is a plane of an affine matrix in interleaved tiles, quant/interleave.h

  std::uint64_t slice_bytes() const;  // of one index of the first dimension; all of a scalar
  bool contiguous() const;
  Extent extent() const;  // the whole tensor, which must be contiguous
};

// A tensor of an element type that this program does not read, such as F64: no harm unless a model
// asks for it.
struct UnreadTensor {
  std::string dtype;  // as the file names it
  int file = -1;
};

// How a tokenizer and a chat template are found; a path is empty when the checkpoint does not have
// that file.
// NOLINTNEXTLINE(bugprone-exception-escape): the JSON library asserts in its move constructor
struct TextAssets {
  std::string tokenizer_json;
  std::string tokenizer_config;
  std::string tokenizer_bin;  // original moeflux: BPET
  std::string vocab_bin;      // original moeflux: decode only
  std::string tiktoken_model;
  std::string gguf;              // a GGUF file that has a vocabulary
  std::uint64_t gguf_bytes = 0;  // of its header
  // chat_template.jinja, else tokenizer_config's "chat_template" (string or list of {name,
  // template}), else chat_template.json; null when there is none.
  Json chat_template;
};

// Bytes with a checksum of their own: a routed expert, or a dense tensor, of a container. An
// expert's planes all lie in one record, which is best read whole.
struct Record {
  Extent extent;
  std::uint64_t checksum = 0;  // see source/checksum.h
  std::string name;            // for messages: "model.layers.3.mlp. expert 17"
};

// A run of bytes of a file on disk.
struct DiskPiece {
  int file = -1;  // as disk_file() numbers them
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct TextRecord {
  std::string name, path;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

class ModelSource {
 public:
  enum class Layout { Safetensors, Mlx, FlashMoe, Container, Gguf };

  ModelSource(std::string path, Layout layout)
      : path_(std::move(path)), layout_(layout), conventions_(layout) {}

  const std::string& path() const { return path_; }
  Layout layout() const { return layout_; }
  // The layout whose way of storing numbers the tensors follow: of a container, that of the
  // checkpoint it was made from; else layout().
  Layout conventions() const { return conventions_; }
  // Names the weights: equal for equal ones, wherever they lie. Empty unless a container.
  const std::string& fingerprint() const { return fingerprint_; }
  const Json& config() const { return config_; }
  const std::string& config_origin() const { return config_origin_; }   // file to blame in messages
  const Json& generation_config() const { return generation_config_; }  // {} when absent
  const TextAssets& text() const { return text_; }
  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;           // null when there is none
  const UnreadTensor* find_unread(std::string_view name) const;  // those are not in tensors()
  const SourceFile& file(int index) const { return files_[static_cast<std::size_t>(index)]; }
  int n_files() const { return static_cast<int>(files_.size()); }
  void read(const Extent& extent, std::span<std::byte> out) const;  // out.size() == extent.bytes

  const File& disk_file(int index) const;
  int n_disk_files() const { return static_cast<int>(disk_files_.size()); }
  std::vector<std::string> disk_paths() const;  // of all disk files, as numbered
  // The runs on disk that make up the extent, in its order; one unless its file is striped.
  std::vector<DiskPiece> locate(const Extent& extent) const;

  // By file and offset, disjoint. Empty unless a container.
  std::span<const Record> records() const { return records_; }
  // Files that are no weights and have a checksum. Empty unless a container.
  std::span<const TextRecord> text_records() const { return text_records_; }
  // The record that the whole extent lies in; null when there is none.
  const Record* find_record(const Extent& extent) const;

  // For the readers of the layouts, while opening.
  int add_file(SourceFile file);  // returns its index
  // Throws Error when one is outside of its file or two overlap.
  void set_records(std::vector<Record> records);
  void set_text_records(std::vector<TextRecord> records) { text_records_ = std::move(records); }
  void set_conventions(Layout layout) { conventions_ = layout; }
  void set_fingerprint(std::string fingerprint) { fingerprint_ = std::move(fingerprint); }
  // Throws Error when the invariant does not hold or the name is taken.
  void add_tensor(const std::string& name, TensorInfo tensor);
  void add_unread_tensor(const std::string& name, UnreadTensor tensor);  // the same for the name
  void set_config(Json config, std::string origin);
  void set_generation_config(Json config) { generation_config_ = std::move(config); }
  void set_text(TextAssets text) { text_ = std::move(text); }

 private:
  void refuse_taken(const std::string& name, int file_index) const;

  std::string path_;
  Layout layout_;
  Layout conventions_;
  Json config_ = Json::object();
  std::string config_origin_;
  Json generation_config_ = Json::object();
  TextAssets text_;
  struct DiskFile {
    int file = 0;
    int part = 0;
  };

  std::vector<SourceFile> files_;
  std::vector<int> first_disk_file_;  // of each of files_
  std::vector<DiskFile> disk_files_;
  std::vector<Record> records_;
  std::vector<TextRecord> text_records_;
  std::string fingerprint_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, UnreadTensor, std::less<>> unread_;
};

std::string_view layout_name(ModelSource::Layout layout);
std::optional<ModelSource::Layout> parse_layout(std::string_view name);

// "[64, 2048]", for messages.
std::string shape_text(std::span<const std::int64_t> shape);

// Bytes of a tensor's elements by its type and shape, without gaps; throws Error naming file and
// tensor for a shape that no file can hold.
std::uint64_t stored_bytes(const std::string& file, const std::string& name,
                           const TensorInfo& tensor);

// Opens a checkpoint directory (or a single .safetensors or .gguf file) of any known layout,
// recognised by what it holds. Throws Error naming the path and what is wrong with it.
std::shared_ptr<const ModelSource> open_source(const std::string& path);

}  // namespace moeflux
