#include "runtime/weight_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "model/map_tensors.h"
#include "quant/interleave.h"
#include "source/checksum.h"
#include "source/read_matrix.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kBlock = 4096;
constexpr std::size_t kMaxResults = 64;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where each piece of the weights goes. What is read from the drive lies where its file offset and
// its address agree modulo a block, so that it can be read straight into its place.
class Layout {
 public:
  std::uint64_t place(const Extent& plane) {
    std::uint64_t at = round_up(used_, kAlignment);
    at += (plane.offset - at) % kBlock;
    used_ = at + plane.bytes;
    return at;
  }
  std::uint64_t place_bytes(std::uint64_t n) {
    const std::uint64_t at = round_up(used_, kAlignment);
    used_ = at + n;
    return at;
  }
  std::uint64_t place_floats(std::int64_t n) {
    return place_bytes(static_cast<std::uint64_t>(n) * sizeof(float));
  }
  std::uint64_t bytes() const { return round_up(used_, kAlignment); }

 private:
  std::uint64_t used_ = 0;
};

// The planes of a matrix in memory, kNoPlane for those it does not have.
struct Places {
  std::uint64_t data, scales, biases;
};

// One that is repacked lies anywhere: what is read of it goes elsewhere first.
Places place(Layout& layout, const StoredMatrix& m) {
  const PlaneBytes bytes = m.in_memory();
  const auto plane = [&](const Extent& extent, std::uint64_t n) {
    if (n == 0) return Weight::kNoPlane;
    if (m.repack != nullptr) return layout.place_bytes(n);
    MOEFLUX_ASSERT(extent.bytes == n);
    return layout.place(extent);
  };
  return {plane(m.data, bytes.data), plane(m.scales, bytes.scales),
          plane(m.biases, bytes.biases)};  // braces evaluate from left to right
}

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
    const Places places = place(layout_, m);
    Weight weight{.format = m.format,
                  .rows = m.rows,
                  .cols = m.cols,
                  .buffer = &memory_,
                  .data = places.data,
                  .scales = places.scales,
                  .biases = places.biases,
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
    std::vector<float> values = v.decode(raw.data());
    if (v.columns > 0) transpose(values, v.size / v.columns, v.columns);
    for (float& value : values) value += v.shift;
    const View view{&memory_, layout_.place_floats(v.size), 1, v.size, v.size};
    backend_.upload(std::as_bytes(std::span(values)), view.bytes());
    return view;
  }

  // Reads all matrices that have been placed.
  void read(const LoadProgress& progress) {
    for (const Matrix& m : matrices_) total_ += m.source->read_bytes();
    const std::span<const Matrix> all = matrices_;
    const bool in_place = memory_.host() != nullptr;
    std::uint64_t largest = kPieceBytes;
    for (const Matrix& m : all) largest = std::max(largest, m.end - m.begin + 2 * kBlock);
    const auto staging = in_place ? nullptr : backend_.allocate(largest, MemoryKind::Pinned);
    for (std::size_t first = 0, last; first < all.size(); first = last) {
      // The piece begins where addresses and file offsets agree modulo a block.
      const std::uint64_t begin = all[first].begin / kBlock * kBlock;
      std::uint64_t repacked = bytes_to_repack(all[first]);
      for (last = first + 1; last < all.size(); ++last) {
        repacked += bytes_to_repack(all[last]);
        if (repacked > kPieceBytes || (!in_place && all[last].end - begin > largest)) break;
      }
      const std::span<const Matrix> piece = all.subspan(first, last - first);
      if (in_place) {
        read_piece(piece, memory_.host(), 0, progress);
      } else {
        read_piece(piece, staging->host(), begin, progress);
        copy_piece(piece, *staging, begin);
      }
    }
  }

 private:
  // What is read at once where it cannot be read into its place.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

  struct Matrix {
    const StoredMatrix* source;
    Weight weight;             // as it lies when it has been read and repacked
    WeightFormat layout;       // as it is to lie
    std::uint64_t begin, end;  // in the buffer
  };
  // What is stored of a matrix, and where it is read to.
  struct Plane {
    const Extent* extent;
    std::byte* to;
  };

  static std::uint64_t bytes_to_repack(const Matrix& m) {
    return m.source->repack == nullptr ? 0 : m.source->read_bytes() + 3 * kBlock;
  }

  // memory: where offset 0 of the buffer would be.
  static WeightView view_in(const Matrix& m, std::byte* memory) {
    const auto plane = [&](std::uint64_t offset) {
      return offset == Weight::kNoPlane ? nullptr : memory + offset;
    };
    return {.format = m.weight.format,
            .rows = m.weight.rows,
            .cols = m.weight.cols,
            .data = plane(m.weight.data),
            .scales = plane(m.weight.scales),
            .biases = plane(m.weight.biases),
            .block_row0 = m.weight.block_row0};
  }

  // Vectors that lie between the matrices have been uploaded already.
  void copy_piece(std::span<const Matrix> matrices, const Buffer& staging, std::uint64_t begin) {
    for (const Matrix& m : matrices) {
      const PlaneBytes bytes = m.source->in_memory();
      const auto copy = [&](std::uint64_t offset, std::uint64_t n) {
        if (n > 0) backend_.copy({&staging, offset - begin, n}, {&memory_, offset, n});
      };
      copy(m.weight.data, bytes.data);
      copy(m.weight.scales, bytes.scales);
      copy(m.weight.biases, bytes.biases);
    }
    backend_.wait_for_all();
  }

  // Into host memory that stands for the buffer from `begin` on.
  void read_piece(std::span<const Matrix> matrices, std::byte* memory, std::uint64_t begin,
                  const LoadProgress& progress) {
    Layout beside;
    std::vector<Places> places;  // of the extents of those that are repacked
    for (const Matrix& m : matrices) {
      const StoredMatrix& source = *m.source;
      if (source.repack != nullptr)
        places.push_back(
            {beside.place(source.data), beside.place(source.scales), beside.place(source.biases)});
    }
    const AlignedBuffer scratch(beside.bytes());
    std::vector<Plane> planes;
    std::vector<StoredPlanes> stored;
    for (const Matrix& m : matrices) {
      const bool is_repacked = m.source->repack != nullptr;
      const Places at = is_repacked ? places[stored.size()]
                                    : Places{m.weight.data, m.weight.scales, m.weight.biases};
      std::byte* base = is_repacked ? scratch.data() : memory - begin;
      const auto add = [&](const Extent& extent, std::uint64_t offset) -> const std::byte* {
        if (extent.bytes == 0) return nullptr;
        planes.push_back({&extent, base + offset});
        return base + offset;
      };
      const StoredPlanes of{add(m.source->data, at.data), add(m.source->scales, at.scales),
                            add(m.source->biases, at.biases)};
      if (is_repacked) stored.push_back(of);
    }
    read(planes, progress);
    for (const Plane& plane : planes) check(*plane.extent, plane.to);
    repack(matrices, stored, memory - begin);
    arrange(matrices, memory - begin);
  }

  void read(std::span<const Plane> planes, const LoadProgress& progress) {
    std::vector<ReadOp> ops;
    for (const Plane& plane : planes) {
      std::byte* out = plane.to;
      for (const DiskPiece& piece : source_.locate(*plane.extent)) {
        ops.push_back({.file = piece.file,
                       .offset = piece.offset,
                       .out = {out, static_cast<std::size_t>(piece.bytes)},
                       .tag = ops.size()});
        out += piece.bytes;
      }
    }
    read(ops, progress);
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

  // What has been read of some matrices, in their order, to rows.
  void repack(std::span<const Matrix> matrices, std::span<const StoredPlanes> stored,
              std::byte* memory) const {
    constexpr std::int64_t kRowsPerTask = 512;
    struct Task {
      const Matrix* matrix;
      const StoredPlanes* from;
      WeightView to;
      std::int64_t begin, end;
    };
    std::vector<Task> tasks;
    for (const Matrix& m : matrices) {
      if (m.source->repack == nullptr) continue;
      const WeightView to = view_in(m, memory);
      for (std::int64_t begin = 0; begin < to.rows; begin += kRowsPerTask)
        tasks.push_back({&m, &stored.front(), to, begin, std::min(begin + kRowsPerTask, to.rows)});
      stored = stored.subspan(1);
    }
    std::atomic<const Matrix*> refused = nullptr;
    backend_.parallel_for(std::ssize(tasks), [&](std::int64_t i) {
      const Task& t = tasks[static_cast<std::size_t>(i)];
      if (!repack_rows(*t.matrix->source->repack, *t.from, t.to, t.begin, t.end))
        refused = t.matrix;
    });
    if (refused != nullptr) refuse_zero_points(refused.load()->source->name);
  }

  // Rows to interleaved tiles and back.
  void arrange(std::span<const Matrix> matrices, std::byte* memory) const {
    constexpr std::int64_t kTilesPerTask = 32;
    struct Task {
      WeightView matrix;
      std::int64_t begin, end;
    };
    std::vector<Task> tasks;
    for (const Matrix& m : matrices) {
      if (m.layout == m.weight.format) continue;
      const WeightView view = view_in(m, memory);
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
    void operator()(const StoredMatrix& m) const { place(layout, m); }
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
