// Where routed experts come from: which bytes of which files make up an expert, and where they land
// in a slot of memory. Any checkpoint can be streamed in place: planes that lie close together are
// fetched with one read, a record of a container is one read, and every read lands where its file
// offset and its address agree modulo kBlock, so that direct I/O needs no copy. What is not stored
// as rows becomes rows when it has landed, in the same slot: a plane that serves several matrices
// (gate and up in turns) is read once. Immutable.
//
// Banks whose experts have as many bytes share a class of slots: slots of a class hold any expert
// of its banks. A model of one quantization has one class.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/memory.h"
#include "experts/expert_ids.h"
#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

class Backend;

// The matrices of an expert in a slot, as operands.
struct ExpertView {
  Weight gate, up, down;
};

// A run of bytes on disk and its place in the slot.
struct ExpertRead {
  int disk_file = 0;  // as ModelSource::disk_file() numbers them
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slot_offset = 0;
};

struct SlotClass {
  std::size_t slot_bytes = 0;  // a multiple of ExpertStore::kBlock
  std::size_t n_experts = 0;   // of all its banks
  std::vector<int> banks;
  std::size_t repack_bytes = 0;  // of memory beside the slot while an expert is repacked
};

// Slots of each class.
using SlotCounts = std::vector<std::size_t>;

// How to divide memory among the classes: about the same part of the experts of each, and at least
// min_slots of each where `bytes` allow that, one where they do not.
SlotCounts slots_for(std::span<const SlotClass> classes, std::uint64_t bytes,
                     std::size_t min_slots = 1);
std::uint64_t bytes_of(std::span<const SlotClass> classes, const SlotCounts& slots);
// The least memory that has min_slots in every class.
std::uint64_t floor_bytes(std::span<const SlotClass> classes, std::size_t min_slots);

class ExpertStore {
 public:
  static constexpr std::uint64_t kBlock = 4096;

  // Prepared experts lie as the backend wants the weights of products; without one as they are
  // stored.
  ExpertStore(std::shared_ptr<const ModelSource> source, const std::vector<ExpertBank>& banks,
              const Backend* backend = nullptr);

  int n_banks() const { return ids_.n_layers(); }
  int n_experts(int bank) const { return ids_.n_experts(bank); }
  std::uint64_t n_experts_total() const { return experts_.size(); }
  const ModelSource& source() const { return *source_; }

  const ExpertIds& ids() const { return ids_; }
  int id(ExpertKey key) const { return ids_.id(key); }

  // Slots.
  std::span<const SlotClass> classes() const { return classes_; }
  int class_of(int bank) const { return class_of_[static_cast<std::size_t>(bank)]; }
  std::size_t slot_bytes() const;    // of the largest class; 0 without experts
  std::size_t repack_bytes() const;  // what one prepare() takes beside the slot
  // See above; and the memory of all experts.
  SlotCounts slots_for(std::uint64_t bytes, std::size_t min_slots = 1) const {
    return moeflux::slots_for(classes_, bytes, min_slots);
  }
  std::uint64_t bytes_of(const SlotCounts& slots) const {
    return moeflux::bytes_of(classes_, slots);
  }
  std::uint64_t floor_bytes(std::size_t min_slots) const {
    return moeflux::floor_bytes(classes_, min_slots);
  }
  std::uint64_t all_bytes() const { return floor_bytes(experts_.size()); }

  std::span<const ExpertRead> reads(ExpertKey key) const;
  std::uint64_t read_bytes(ExpertKey key) const;

  // All reads of an expert have landed in `slot`: checks them and arranges them as view() says.
  // Once for each landing. Throws Error(Io) naming the expert when the bytes do not have the
  // checksum its container recorded.
  void prepare(ExpertKey key, std::byte* slot) const;

  // The matrices of an expert that has been prepared, in a slot at `offset` of a buffer.
  ExpertView view(ExpertKey key, const Buffer& buffer, std::uint64_t offset) const;

  std::string name(ExpertKey key) const;  // for messages

 private:
  using Planes = std::array<std::uint64_t, 3>;  // data, scales, biases
  struct Matrix {
    WeightFormat format;  // as it is stored, or repacked
    WeightFormat layout;  // as it is prepared
    std::int64_t rows = 0, cols = 0, block_row0 = 0;
    // Offsets in the slot; Weight::kNoPlane when absent.
    Planes planes{};
  };
  // Of an expert of which any matrix is repacked: where its planes land, all within `bytes`.
  struct Landing {
    std::size_t bytes = 0;
    std::array<Planes, 3> planes{};
    std::array<std::shared_ptr<const Repack>, 3> how;
  };
  struct Expert {
    std::array<Matrix, 3> matrices;
    std::int32_t landing = -1;  // index into landings_
    std::uint32_t first_read = 0, n_reads = 0;
    const Record* record = nullptr;  // when it is one record with a checksum
    std::uint64_t record_slot_offset = 0;
  };

  // What the largest expert of a bank takes.
  struct BankBytes {
    std::uint64_t stored = 0;
    std::size_t slot = 0, repack = 0;
  };

  void place(const std::array<StoredMatrix, 3>& matrices, const Backend* backend, BankBytes& bank);
  void classify(const std::vector<BankBytes>& banks);
  void check(const Expert& expert, const std::byte* slot) const;
  void repack(ExpertKey key, const Expert& expert, std::byte* slot) const;
  const Expert& at(ExpertKey key) const { return experts_[static_cast<std::size_t>(id(key))]; }

  std::shared_ptr<const ModelSource> source_;
  ExpertIds ids_;
  std::vector<std::string> names_;  // of each bank
  std::vector<Expert> experts_;
  std::vector<Landing> landings_;
  std::vector<ExpertRead> reads_;
  std::vector<SlotClass> classes_;
  std::vector<int> class_of_;  // of each bank
};

}  // namespace moeflux
