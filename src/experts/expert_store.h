// Where routed experts come from: which bytes of which files make up an expert, and where they land
// in a slot of memory. Any checkpoint can be streamed in place: planes that lie close together are
// fetched with one read, a record of a container is one read, and every read lands where its file
// offset and its address agree modulo kBlock, so that direct I/O needs no copy. Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experts/expert_ids.h"
#include "model/model_tensors.h"
#include "source/model_source.h"

namespace moeflux {

struct ExpertKey {
  int bank = 0;
  int expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

struct ExpertView {
  WeightView gate, up, down;
};

// A run of bytes on disk and its place in the slot.
struct ExpertRead {
  int disk_file = 0;  // as ModelSource::disk_file() numbers them
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slot_offset = 0;
};

class ExpertStore {
 public:
  static constexpr std::uint64_t kBlock = 4096;

  // in_panels: whether affine matrices are to lie in panels (quant/panels.h) once they have been
  // prepared.
  ExpertStore(std::shared_ptr<const ModelSource> source, const std::vector<ExpertBank>& banks,
              bool in_panels = false);

  int n_banks() const { return ids_.n_layers(); }
  int n_experts(int bank) const { return ids_.n_experts(bank); }
  std::uint64_t n_experts_total() const { return experts_.size(); }
  std::size_t slot_bytes() const {
    return slot_bytes_;
  }  // holds any expert of the model; a multiple of kBlock
  const ModelSource& source() const { return *source_; }

  const ExpertIds& ids() const { return ids_; }
  int id(ExpertKey key) const { return ids_.id(key.bank, key.expert); }

  std::span<const ExpertRead> reads(ExpertKey key) const;
  std::uint64_t read_bytes(ExpertKey key) const;

  // All reads of an expert have landed in `slot`: checks them and arranges them as view() says.
  // Once for each landing. Throws Error(Io) naming the expert when the bytes do not have the
  // checksum its container recorded.
  void prepare(ExpertKey key, std::byte* slot) const;

  // The matrices of an expert that has been prepared.
  ExpertView view(ExpertKey key, const std::byte* slot) const;

  std::string name(ExpertKey key) const;  // for messages

 private:
  struct Matrix {
    WeightFormat format;  // as it is stored
    std::int64_t rows = 0, cols = 0, block_row0 = 0;
    std::array<std::uint64_t, 3>
        planes{};  // offsets in the slot of data, scales, biases; kNone when absent
  };
  struct Expert {
    std::array<Matrix, 3> matrices;
    std::uint32_t first_read = 0, n_reads = 0;
    const Record* record = nullptr;  // when it is one record with a checksum
    std::uint64_t record_slot_offset = 0;
  };
  static constexpr std::uint64_t kNone = UINT64_MAX;

  void place(const std::array<StoredMatrix, 3>& matrices);
  void check(const Expert& expert, const std::byte* slot) const;
  WeightView stored_view(const Matrix& matrix, const std::byte* slot) const;
  const Expert& at(ExpertKey key) const { return experts_[static_cast<std::size_t>(id(key))]; }

  std::shared_ptr<const ModelSource> source_;
  bool in_panels_;
  ExpertIds ids_;
  std::vector<std::string> names_;  // of each bank
  std::vector<Expert> experts_;
  std::vector<ExpertRead> reads_;
  std::size_t slot_bytes_ = 0;
};

}  // namespace moeflux
