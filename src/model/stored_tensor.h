// Where the weights of a model lie in its files. A checkpoint is an index: these types say "these
// bytes of that file, stored like this", and whoever needs the numbers reads them.
//
// Most matrices are stored as the rows of their format, and what is read is what is used. Where
// they are not (`repack`), the bytes of the extents become those rows when they are loaded: the
// format, rows and columns are always those of the matrix in memory (decision 0021).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "quant/repack.h"
#include "quant/weight_format.h"

namespace moeflux {

// A run of bytes in one of the source's files. The source guarantees that it lies inside the file.
struct Extent {
  int file = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// A matrix [rows, cols] with its planes (see quant/weight_format.h); planes a format does not have
// are empty.
struct StoredMatrix {
  std::string name;  // for messages
  WeightFormat format{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Extent data{}, scales{}, biases{};
  std::int64_t block_row0 = 0;
  std::shared_ptr<const Repack> repack = nullptr;  // null: the extents are the planes

  // Of the extents; and as stored, of what is picked from them.
  std::uint64_t read_bytes() const { return data.bytes + scales.bytes + biases.bytes; }
  std::uint64_t bytes() const;
  PlaneBytes in_memory() const { return plane_bytes(format, rows, cols, block_row0); }
  bool empty() const { return rows == 0; }

  // Rows [begin, begin + count) as a matrix of its own: still extents of the same file.
  StoredMatrix slice(std::int64_t begin, std::int64_t count) const;
  // The rows that `runs` names, in that order, as a matrix that is repacked when it is loaded. FP8
  // blocks become blocks of one row. Throws Error(BadInput) for rows that are not there.
  StoredMatrix pick(const RowRuns& runs) const;
};

// The format, and how it is stored where that is another: "bf16", "int 4-bit g128 (gptq)".
std::string describe(const StoredMatrix& matrix);

// A vector of `size` numbers in a plain float type. When they are loaded each is multiplied by
// `factor`, and then `shift` is added: 1 for the norms that a checkpoint stores zero-centred. With
// `are_negated_exps` -exp(x) is stored of each number x.
// Number i is number first + i * step of the extent: of biases stored as gate, up, gate, up, ...
// every other one.
struct StoredVector {
  std::string name;
  DType dtype = DType::F32;
  std::int64_t size = 0;
  Extent data{};
  float factor = 1, shift = 0;
  bool are_negated_exps = false;
  std::int64_t columns = 0;  // a matrix of rows of this many values, in memory column by column
  std::int64_t first = 0, step = 1;

  bool empty() const { return size == 0; }

  // Every `step`-th number from `first` on, as a vector of its own.
  StoredVector every(std::int64_t first_of, std::int64_t step_of) const;
  // The numbers that the bytes of the extent stand for, without `shift`.
  std::vector<float> decode(const std::byte* bytes) const;
};

// One projection of all experts of a layer: either a stack at a fixed stride or one matrix each.
class StoredExpertBank {
 public:
  StoredExpertBank() = default;
  explicit StoredExpertBank(std::vector<StoredMatrix> each) : each_(std::move(each)) {}
  struct Strides {
    std::uint64_t data = 0, scales = 0,
                  biases = 0;  // bytes from one expert's plane to the next one's
  };
  StoredExpertBank(StoredMatrix first, Strides strides, int count)
      : each_{std::move(first)}, strides_(strides), stacked_count_(count) {}

  int count() const { return stacked_count_ > 0 ? stacked_count_ : static_cast<int>(each_.size()); }
  StoredMatrix at(int expert) const;

  // The same rows of every expert: how gate and up are taken out of a fused gate_up bank.
  StoredExpertBank slice(std::int64_t begin, std::int64_t count) const;
  StoredExpertBank pick(const RowRuns& runs) const;

 private:
  std::vector<StoredMatrix> each_;
  Strides strides_;
  int stacked_count_ = 0;  // 0: each_ holds every expert
};

}  // namespace moeflux
