#include "runtime/weight_store.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/map_tensors.h"
#include "quant/codec.h"
#include "quant/panels.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kBlock = 4096;
constexpr std::size_t kMaxResults = 64;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where each piece of the weights goes. A plane lies where its file offset and its address agree
// modulo a block, so that it can be read straight from the disk into its place.
class Layout {
 public:
  std::uint64_t place(const Extent& plane) {
    std::uint64_t at = round_up(used_, kAlignment);
    at += (plane.offset - at) % kBlock;
    used_ = at + plane.bytes;
    return at;
  }
  std::uint64_t place_floats(std::int64_t n) {
    const std::uint64_t at = round_up(used_, kAlignment);
    used_ = at + static_cast<std::uint64_t>(n) * sizeof(float);
    return at;
  }
  std::uint64_t bytes() const { return round_up(used_, kAlignment); }

 private:
  std::uint64_t used_ = 0;
};

// Takes in every read that was started, also when loading fails half-way: the memory they write to
// must outlive them.
class Drain {
 public:
  explicit Drain(AsyncReader& reader) : reader_(reader) {}
  ~Drain() {
    reader_.cancel_waiting();
    std::array<ReadResult, kMaxResults> results;
    while (reader_.in_flight() > 0) reader_.wait(results, /*block=*/true);
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

 private:
  AsyncReader& reader_;
};

// Matrices of which single rows or heads are taken, not products with all of them.
std::vector<const StoredMatrix*> matrices_by_rows(const ModelTensors<Stored>& stored) {
  std::vector<const StoredMatrix*> list;
  if (!stored.head.empty()) list.push_back(&stored.embed);
  const auto add = [&](const LayerTensors<Stored>& layer) {
    const auto* mla = std::get_if<MlaTensors<Stored>>(&layer.mixer);
    if (mla != nullptr) list.insert(list.end(), {&mla->kv_b, &mla->embed_q, &mla->unembed});
  };
  for (const LayerTensors<Stored>& layer : stored.layers) add(layer);
  if (stored.mtp) add(stored.mtp->layer);
  return list;
}

class Loader {
 public:
  Loader(const ModelSource& source, AsyncReader& reader, std::byte* memory,
         const Arrangement& arrangement, const ModelTensors<Stored>& stored)
      : source_(source), reader_(reader), memory_(memory), arrangement_(arrangement) {
    by_rows_ = matrices_by_rows(stored);
  }

  WeightView operator()(const StoredMatrix& m) {
    WeightView view{.format = m.format, .rows = m.rows, .cols = m.cols, .block_row0 = m.block_row0};
    view.data = plane(m.data);
    view.scales = plane(m.scales);
    view.biases = plane(m.biases);
    const bool in_panels =
        arrangement_.in_panels && std::find(by_rows_.begin(), by_rows_.end(), &m) == by_rows_.end();
    const WeightFormat wanted = arranged(m.format, in_panels);
    if (!(wanted == m.format) && !view.empty()) to_arrange_.push_back(view);
    view.format = wanted;
    return view;
  }

  static void transpose(float* matrix, std::int64_t rows, std::int64_t columns) {
    const std::vector<float> by_rows(matrix, matrix + rows * columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c)
        matrix[c * rows + r] = by_rows[static_cast<std::size_t>(r * columns + c)];
    }
  }

  const float* operator()(const StoredVector& v) {
    if (v.empty()) return nullptr;
    std::vector<std::byte> raw(v.data.bytes);
    source_.read(v.data, raw);
    auto* out = static_cast<float*>(static_cast<void*>(memory_ + layout_.place_floats(v.size)));
    decode_floats(v.dtype, raw.data(), v.size, out);
    if (v.columns > 0) transpose(out, v.size / v.columns, v.columns);
    for (std::int64_t i = 0; i < v.size; ++i) out[i] += v.shift;
    return out;
  }

  // Reads all planes that have been placed.
  void read(const LoadProgress& progress) {
    const Drain drain(reader_);
    reader_.submit(ops_);
    std::uint64_t total = 0, done = 0;
    for (const ReadOp& op : ops_) total += op.out.size();
    std::array<ReadResult, kMaxResults> results;
    while (reader_.in_flight() > 0) {
      const std::size_t n = reader_.wait(results, /*block=*/true);
      for (std::size_t i = 0; i < n; ++i) {
        if (results[i].error != 0) report(ops_[results[i].tag], results[i].error);
        done += results[i].bytes;
      }
      if (progress) progress(done, total);
    }
    for (const auto& [extent, place] : planes_) check(extent, place);
    arrange();
  }

 private:
  const std::byte* plane(const Extent& extent) {
    if (extent.bytes == 0) return nullptr;
    std::byte* const out = memory_ + layout_.place(extent);
    std::uint64_t at = 0;
    for (const DiskPiece& piece : source_.locate(extent)) {
      ops_.push_back({.file = piece.file,
                      .offset = piece.offset,
                      .out = {out + at, static_cast<std::size_t>(piece.bytes)},
                      .tag = ops_.size()});
      at += piece.bytes;
    }
    planes_.emplace_back(extent, out);
    return out;
  }

  [[noreturn]] void report(const ReadOp& op, int error) const {
    fail(Errc::Io, "{}: reading {} bytes at offset {} failed: {}",
         source_.disk_file(op.file).path(), op.out.size(), op.offset, describe_read_error(error));
  }

  void check(const Extent& extent, const std::byte* place) const {
    const Record* record = source_.find_record(extent);
    if (record == nullptr || record->extent.bytes != extent.bytes) return;
    if (checksum({place, static_cast<std::size_t>(extent.bytes)}) == record->checksum) return;
    fail(Errc::Io,
         "{}: {} is damaged: its checksum does not match; run `moeflux check` and restore the file",
         source_.path(), record->name);
  }

  void arrange() const {
    constexpr std::int64_t kPanelsPerTask = 32;
    struct Task {
      const WeightView* matrix;
      std::int64_t begin, end;
    };
    std::vector<Task> tasks;
    for (const WeightView& matrix : to_arrange_) {
      const std::int64_t count = n_panels(matrix.rows);
      for (std::int64_t begin = 0; begin < count; begin += kPanelsPerTask)
        tasks.push_back({&matrix, begin, std::min(begin + kPanelsPerTask, count)});
    }
    const auto run = [&](std::int64_t i) {
      const Task& task = tasks[static_cast<std::size_t>(i)];
      std::vector<std::byte> scratch(panel_scratch_bytes(task.matrix->format, task.matrix->cols));
      for (std::int64_t p = task.begin; p < task.end; ++p) arrange_panel(*task.matrix, p, scratch);
    };
    if (arrangement_.parallel_for) return arrangement_.parallel_for(std::ssize(tasks), run);
    for (std::int64_t i = 0; i < std::ssize(tasks); ++i) run(i);
  }

  const ModelSource& source_;
  AsyncReader& reader_;
  std::byte* memory_;
  const Arrangement& arrangement_;
  std::vector<const StoredMatrix*> by_rows_;
  std::vector<WeightView> to_arrange_;  // as they lie when they have been read
  Layout layout_;
  std::vector<ReadOp> ops_;
  std::vector<std::pair<Extent, const std::byte*>> planes_;
};

}  // namespace

std::uint64_t WeightStore::bytes_needed(const ModelTensors<Stored>& stored) {
  Layout layout;
  struct Visitor {
    Layout& layout;
    void operator()(const StoredMatrix& m) const {
      for (const Extent* plane : {&m.data, &m.scales, &m.biases}) {
        if (plane->bytes > 0) layout.place(*plane);
      }
    }
    void operator()(const StoredVector& v) const { layout.place_floats(v.size); }
  };
  for_each_tensor(stored, Visitor{layout});
  return layout.bytes();
}

WeightStore::WeightStore(const ModelSource& source, const ModelTensors<Stored>& stored,
                         AsyncReader& reader, MemoryBudget& budget, const LoadProgress& progress,
                         const Arrangement& arrangement)
    : reservation_(budget.reserve("dense weights", bytes_needed(stored))),
      memory_(reservation_.bytes()) {
  Loader loader(source, reader, memory_.data(), arrangement, stored);
  tensors_ = map_tensors<Resident>(stored, [&](const auto& tensor) { return loader(tensor); });
  if (stored.head.empty()) tensors_.head = tensors_.embed;
  loader.read(progress);
}

}  // namespace moeflux
