#include "runtime/weight_store.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/map_tensors.h"
#include "quant/codec.h"
#include "quant/interleave.h"
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
// modulo a block, so that it can be read straight from the drive into its place.
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
  const auto add = [&](const Layer<Stored>& layer) {
    const auto* latent = std::get_if<LatentAttention<Stored>>(&layer.mixer);
    if (latent != nullptr)
      list.insert(list.end(), {&latent->kv_b, &latent->embed_q, &latent->unembed});
  };
  for (const Layer<Stored>& layer : stored.layers) add(layer);
  if (stored.mtp) add(stored.mtp->layer);
  return list;
}

void transpose(std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  const std::vector<float> by_rows = matrix;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      matrix[static_cast<std::size_t>(c * rows + r)] =
          by_rows[static_cast<std::size_t>(r * columns + c)];
  }
}

// Places every tensor in the buffer, and then reads them: where the host reaches the buffer all at
// once and in place, else piece by piece through pinned memory.
class Loader {
 public:
  Loader(const ModelSource& source, AsyncReader& reader, Backend& backend, const Buffer& memory,
         const ModelTensors<Stored>& stored)
      : source_(source),
        reader_(reader),
        backend_(backend),
        memory_(memory),
        by_rows_(matrices_by_rows(stored)) {}

  Weight operator()(const StoredMatrix& m) {
    if (m.empty()) return {};
    const bool by_rows = std::find(by_rows_.begin(), by_rows_.end(), &m) != by_rows_.end();
    const std::uint64_t begin = layout_.bytes();
    Weight weight{.format = m.format,
                  .rows = m.rows,
                  .cols = m.cols,
                  .buffer = &memory_,
                  .data = place(m.data),
                  .scales = place(m.scales),
                  .biases = place(m.biases),
                  .block_row0 = m.block_row0};
    const Weight stored = weight;
    weight.format = backend_.layout_for(m.format, by_rows ? WeightUse::Rows : WeightUse::Product);
    matrices_.push_back({&m, stored, weight.format, begin, layout_.bytes()});
    return weight;
  }

  View operator()(const StoredVector& v) {
    if (v.empty()) return {};
    std::vector<std::byte> raw(v.data.bytes);
    source_.read(v.data, raw);
    std::vector<float> values(static_cast<std::size_t>(v.size));
    decode_floats(v.dtype, raw.data(), v.size, values.data());
    if (v.columns > 0) transpose(values, v.size / v.columns, v.columns);
    for (float& value : values) value += v.shift;
    const View view{&memory_, layout_.place_floats(v.size), 1, v.size, v.size};
    backend_.upload(std::as_bytes(std::span(values)), view.bytes());
    return view;
  }

  // Reads all matrices that have been placed.
  void read(const LoadProgress& progress) {
    for (const Matrix& m : matrices_) total_ += m.source->bytes();
    const std::span<const Matrix> all = matrices_;
    if (memory_.host() != nullptr) {
      read_piece(all, memory_.host(), 0, progress);
      return;
    }
    std::uint64_t largest = kPieceBytes;
    for (const Matrix& m : all) largest = std::max(largest, m.end - m.begin + 2 * kBlock);
    const auto staging = backend_.allocate(largest, MemoryKind::Pinned);
    for (std::size_t first = 0, last; first < all.size(); first = last) {
      // The piece begins where addresses and file offsets agree modulo a block.
      const std::uint64_t begin = all[first].begin / kBlock * kBlock;
      last = first + 1;
      while (last < all.size() && all[last].end - begin <= largest) ++last;
      read_piece(all.subspan(first, last - first), staging->host(), begin, progress);
      // Vectors that lie between the matrices have been uploaded already.
      for (const Matrix& m : all.subspan(first, last - first)) {
        for (const Plane& plane : planes_of(m))
          backend_.copy({staging.get(), plane.offset - begin, plane.extent->bytes},
                        {&memory_, plane.offset, plane.extent->bytes});
      }
      backend_.wait_for_all();
    }
  }

 private:
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

  struct Matrix {
    const StoredMatrix* source;
    Weight weight;             // as it lies when it has been read
    WeightFormat layout;       // as it is to lie
    std::uint64_t begin, end;  // in the buffer
  };
  struct Plane {
    const Extent* extent;
    std::uint64_t offset;  // in the buffer
  };

  std::uint64_t place(const Extent& plane) {
    return plane.bytes == 0 ? Weight::kNoPlane : layout_.place(plane);
  }

  static std::vector<Plane> planes_of(const Matrix& m) {
    std::vector<Plane> planes;
    const Weight& w = m.weight;
    for (const Plane& plane : {Plane{&m.source->data, w.data}, Plane{&m.source->scales, w.scales},
                               Plane{&m.source->biases, w.biases}}) {
      if (plane.extent->bytes > 0) planes.push_back(plane);
    }
    return planes;
  }

  // Into host memory that stands for the buffer from `begin` on.
  void read_piece(std::span<const Matrix> matrices, std::byte* memory, std::uint64_t begin,
                  const LoadProgress& progress) {
    std::vector<ReadOp> ops;
    for (const Matrix& m : matrices) {
      for (const Plane& plane : planes_of(m)) {
        std::byte* out = memory + (plane.offset - begin);
        for (const DiskPiece& piece : source_.locate(*plane.extent)) {
          ops.push_back({.file = piece.file,
                         .offset = piece.offset,
                         .out = {out, static_cast<std::size_t>(piece.bytes)},
                         .tag = ops.size()});
          out += piece.bytes;
        }
      }
    }
    read(ops, progress);
    for (const Matrix& m : matrices) {
      for (const Plane& plane : planes_of(m)) check(*plane.extent, memory + (plane.offset - begin));
    }
    repack(matrices, memory - begin);
  }

  void read(std::span<const ReadOp> ops, const LoadProgress& progress) {
    const Drain drain(reader_);
    reader_.submit(ops);
    std::array<ReadResult, kMaxResults> results;
    while (reader_.in_flight() > 0) {
      const std::size_t n = reader_.wait(results, /*block=*/true);
      for (std::size_t i = 0; i < n; ++i) {
        if (results[i].error != 0) report(ops[results[i].tag], results[i].error);
        done_ += results[i].bytes;
      }
      if (progress) progress(done_, total_);
    }
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

  // memory: where offset 0 of the buffer would be.
  void repack(std::span<const Matrix> matrices, std::byte* memory) const {
    constexpr std::int64_t kTilesPerTask = 32;
    struct Task {
      WeightView matrix;
      std::int64_t begin, end;
    };
    std::vector<Task> tasks;
    for (const Matrix& m : matrices) {
      if (m.layout == m.weight.format) continue;
      const auto plane = [&](std::uint64_t offset) {
        return offset == Weight::kNoPlane ? nullptr : memory + offset;
      };
      const WeightView view{.format = m.weight.format,
                            .rows = m.weight.rows,
                            .cols = m.weight.cols,
                            .data = plane(m.weight.data),
                            .scales = plane(m.weight.scales),
                            .biases = plane(m.weight.biases),
                            .block_row0 = m.weight.block_row0};
      const std::int64_t count = n_tiles(view.rows);
      for (std::int64_t begin = 0; begin < count; begin += kTilesPerTask)
        tasks.push_back({view, begin, std::min(begin + kTilesPerTask, count)});
    }
    backend_.parallel_for(std::ssize(tasks), [&](std::int64_t i) {
      const Task& task = tasks[static_cast<std::size_t>(i)];
      std::vector<std::byte> scratch(tile_scratch_bytes(task.matrix.format, task.matrix.cols));
      for (std::int64_t p = task.begin; p < task.end; ++p) arrange_tile(task.matrix, p, scratch);
    });
  }

  const ModelSource& source_;
  AsyncReader& reader_;
  Backend& backend_;
  const Buffer& memory_;
  std::vector<const StoredMatrix*> by_rows_;
  std::vector<Matrix> matrices_;
  Layout layout_;
  std::uint64_t done_ = 0, total_ = 0;
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
                         AsyncReader& reader, Backend& backend, MemoryBudget& budget,
                         const LoadProgress& progress)
    : reservation_(budget.reserve("dense weights", bytes_needed(stored))),
      memory_(backend.allocate(reservation_.bytes(), MemoryKind::Device, Backing::Huge)) {
  Loader loader(source, reader, backend, *memory_, stored);
  tensors_ = map_tensors<Resident>(stored, [&](const auto& tensor) { return loader(tensor); });
  if (stored.head.empty()) tensors_.head = tensors_.embed;
  loader.read(progress);
}

}  // namespace moeflux
