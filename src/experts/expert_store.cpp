#include "experts/expert_store.h"

#include <algorithm>
#include <cstring>

#include "backends/backend.h"
#include "base/error.h"
#include "quant/interleave.h"
#include "source/checksum.h"
#include "source/read_matrix.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kAlignment = 64;

// Bytes between two planes that are cheaper to read than a second read.
constexpr std::uint64_t kMaxGap = ExpertStore::kBlock;

std::uint64_t round_up(std::uint64_t value) {
  return (value + ExpertStore::kBlock - 1) / ExpertStore::kBlock * ExpertStore::kBlock;
}

// Planes of one file that are fetched together.
struct Run {
  int file;
  std::uint64_t begin, end;
  std::uint64_t slot_offset = 0;  // of `begin`
};

std::vector<Run> merge(std::vector<Extent> extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
  std::vector<Run> runs;
  for (const Extent& extent : extents) {
    const std::uint64_t end = extent.offset + extent.bytes;
    if (!runs.empty() && runs.back().file == extent.file &&
        extent.offset <= runs.back().end + kMaxGap) {
      runs.back().end = std::max(runs.back().end, end);
    } else {
      runs.push_back({extent.file, extent.offset, end});
    }
  }
  return runs;
}

std::vector<int> counts(const std::vector<ExpertBank>& banks) {
  std::vector<int> counts;
  for (const ExpertBank& bank : banks) counts.push_back(bank.gate.count());
  return counts;
}

}  // namespace

std::uint64_t bytes_of(std::span<const SlotClass> classes, const SlotCounts& slots) {
  std::uint64_t bytes = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) bytes += slots[c] * classes[c].slot_bytes;
  return bytes;
}

std::uint64_t floor_bytes(std::span<const SlotClass> classes, std::size_t min_slots) {
  std::uint64_t bytes = 0;
  for (const SlotClass& each : classes)
    bytes += std::min(min_slots, each.n_experts) * each.slot_bytes;
  return bytes;
}

SlotCounts slots_for(std::span<const SlotClass> classes, std::uint64_t bytes,
                     std::size_t min_slots) {
  std::size_t n_experts = 0;
  for (const SlotClass& each : classes) n_experts += each.n_experts;
  const std::size_t least =
      floor_bytes(classes, min_slots) <= bytes ? std::max<std::size_t>(min_slots, 1) : 1;
  // Of `n_total` slots, what each class gets.
  const auto divide = [&](std::size_t n_total) {
    SlotCounts slots;
    for (const SlotClass& each : classes) {
      const std::size_t n = each.n_experts * n_total / n_experts;
      slots.push_back(std::clamp(n, std::min(least, each.n_experts), each.n_experts));
    }
    return slots;
  };
  if (n_experts == 0) return {};
  std::size_t fits = 0, too_many = n_experts + 1;
  while (too_many - fits > 1) {
    const std::size_t middle = fits + (too_many - fits) / 2;
    (bytes_of(classes, divide(middle)) <= bytes ? fits : too_many) = middle;
  }
  SlotCounts slots = divide(fits);
  std::uint64_t used = bytes_of(classes, slots);
  for (std::size_t c = 0; c < classes.size(); ++c) {  // what rounding has left
    while (slots[c] < classes[c].n_experts && used + classes[c].slot_bytes <= bytes) {
      ++slots[c];
      used += classes[c].slot_bytes;
    }
  }
  return slots;
}

ExpertStore::ExpertStore(std::shared_ptr<const ModelSource> source,
                         const std::vector<ExpertBank>& banks, const Backend* backend)
    : source_(std::move(source)), ids_(counts(banks)) {
  std::vector<BankBytes> bytes(banks.size());
  for (std::size_t b = 0; b < banks.size(); ++b) {
    const ExpertBank& bank = banks[b];
    names_.push_back(bank.gate.at(0).name);
    for (int e = 0; e < bank.gate.count(); ++e)
      place({bank.gate.at(e), bank.up.at(e), bank.down.at(e)}, backend, bytes[b]);
  }
  classify(bytes);
}

// By the bytes of the weights alone: where an expert lies in its file also moves the size of its
// slot, by a block or so, and would tear banks apart that are alike.
void ExpertStore::classify(const std::vector<BankBytes>& banks) {
  std::vector<std::uint64_t> bytes_of_class;
  for (std::size_t b = 0; b < banks.size(); ++b) {
    const auto found = std::find(bytes_of_class.begin(), bytes_of_class.end(), banks[b].stored);
    const auto index = static_cast<std::size_t>(found - bytes_of_class.begin());
    if (found == bytes_of_class.end()) {
      bytes_of_class.push_back(banks[b].stored);
      classes_.emplace_back();
    }
    SlotClass& each = classes_[index];
    each.slot_bytes = std::max(each.slot_bytes, banks[b].slot);
    each.repack_bytes = std::max(each.repack_bytes, banks[b].repack);
    each.n_experts += static_cast<std::size_t>(ids_.n_experts(static_cast<int>(b)));
    each.banks.push_back(static_cast<int>(b));
    class_of_.push_back(static_cast<int>(index));
  }
}

std::size_t ExpertStore::repack_bytes() const {
  std::size_t largest = 0;
  for (const SlotClass& each : classes_) largest = std::max(largest, each.repack_bytes);
  return largest;
}

std::size_t ExpertStore::slot_bytes() const {
  std::size_t largest = 0;
  for (const SlotClass& each : classes_) largest = std::max(largest, each.slot_bytes);
  return largest;
}

void ExpertStore::place(const std::array<StoredMatrix, 3>& matrices, const Backend* backend,
                        BankBytes& bank) {
  Expert expert;
  std::vector<Extent> extents;
  for (const StoredMatrix& m : matrices) {
    for (const Extent* plane : {&m.data, &m.scales, &m.biases}) {
      if (plane->bytes > 0) extents.push_back(*plane);
    }
  }
  std::vector<Run> runs = merge(extents);
  if (runs.size() == 1) {
    const Extent whole{runs[0].file, runs[0].begin, runs[0].end - runs[0].begin};
    if (const Record* record = source_->find_record(whole)) {
      expert.record = record;
      runs[0].begin = record->extent.offset;
      runs[0].end = record->extent.offset + record->extent.bytes;
    }
  }

  expert.first_read = static_cast<std::uint32_t>(reads_.size());
  std::uint64_t used = 0;
  for (Run& run : runs) {
    run.slot_offset = used + run.begin % kBlock;
    std::uint64_t at = run.slot_offset;
    for (const DiskPiece& piece : source_->locate({run.file, run.begin, run.end - run.begin})) {
      reads_.push_back({piece.file, piece.offset, piece.bytes, at});
      at += piece.bytes;
    }
    used = round_up(at);
  }
  expert.n_reads = static_cast<std::uint32_t>(reads_.size()) - expert.first_read;
  expert.record_slot_offset = runs[0].slot_offset;

  const auto place_of = [&](const Extent& plane) {
    if (plane.bytes == 0) return Weight::kNoPlane;
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) {
      return r.file == plane.file && r.begin <= plane.offset && plane.offset + plane.bytes <= r.end;
    });
    MOEFLUX_ASSERT(run != runs.end());
    return run->slot_offset + (plane.offset - run->begin);
  };
  const bool is_repacked = std::any_of(matrices.begin(), matrices.end(),
                                       [](const StoredMatrix& m) { return m.repack != nullptr; });
  Landing landing{.bytes = used, .planes = {}, .how = {}};
  std::uint64_t end = 0;  // of rows that something was repacked to
  const auto place_rows = [&](std::uint64_t bytes) {
    if (bytes == 0) return Weight::kNoPlane;
    const std::uint64_t at = end;
    end = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  std::uint64_t stored = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const StoredMatrix& m = matrices[i];
    stored += m.bytes();
    landing.planes[i] = {place_of(m.data), place_of(m.scales), place_of(m.biases)};
    landing.how[i] = m.repack;
    const PlaneBytes rows = m.in_memory();
    Planes planes = landing.planes[i];
    if (is_repacked)
      planes = {place_rows(rows.data), place_rows(rows.scales), place_rows(rows.biases)};
    expert.matrices[i] = {
        m.format,     backend ? backend->layout_for(m.format, WeightUse::Product) : m.format,
        m.rows,       m.cols,
        m.block_row0, planes};
  }
  if (is_repacked) {
    expert.landing = static_cast<std::int32_t>(landings_.size());
    landings_.push_back(std::move(landing));
    bank.repack = std::max<std::size_t>(bank.repack, used);
  }
  experts_.push_back(expert);
  bank.stored = std::max(bank.stored, stored);
  bank.slot = std::max<std::size_t>(bank.slot, std::max(used, round_up(end)));
}

std::span<const ExpertRead> ExpertStore::reads(ExpertKey key) const {
  const Expert& expert = at(key);
  return std::span(reads_).subspan(expert.first_read, expert.n_reads);
}

std::uint64_t ExpertStore::read_bytes(ExpertKey key) const {
  std::uint64_t total = 0;
  for (const ExpertRead& read : reads(key)) total += read.bytes;
  return total;
}

ExpertView ExpertStore::view(ExpertKey key, const Buffer& buffer, std::uint64_t offset) const {
  const auto plane = [&](std::uint64_t at) {
    return at == Weight::kNoPlane ? Weight::kNoPlane : offset + at;
  };
  const auto matrix = [&](const Matrix& m) -> Weight {
    return {.format = m.layout,
            .rows = m.rows,
            .cols = m.cols,
            .buffer = &buffer,
            .data = plane(m.planes[0]),
            .scales = plane(m.planes[1]),
            .biases = plane(m.planes[2]),
            .block_row0 = m.block_row0};
  };
  const Expert& expert = at(key);
  return {matrix(expert.matrices[0]), matrix(expert.matrices[1]), matrix(expert.matrices[2])};
}

void ExpertStore::prepare(ExpertKey key, std::byte* slot) const {
  const Expert& expert = at(key);
  check(expert, slot);
  if (expert.landing >= 0) repack(key, expert, slot);
  for (const Matrix& m : expert.matrices) {
    if (m.layout == m.format) continue;
    MOEFLUX_ASSERT(m.layout == arranged(m.format, !m.format.is_interleaved));
    const WeightView stored{
        .format = m.format,
        .rows = m.rows,
        .cols = m.cols,
        .data = slot + m.planes[0],
        .scales = slot + m.planes[1],
        .biases = m.planes[2] == Weight::kNoPlane ? nullptr : slot + m.planes[2],
        .block_row0 = m.block_row0};
    std::vector<std::byte> scratch(tile_scratch_bytes(m.format, m.cols));
    for (std::int64_t p = 0; p < n_tiles(m.rows); ++p) arrange_tile(stored, p, scratch);
  }
}

// Rows take the place of what has landed, which moves out of the way first.
void ExpertStore::repack(ExpertKey key, const Expert& expert, std::byte* slot) const {
  const Landing& landing = landings_[static_cast<std::size_t>(expert.landing)];
  const auto landed = std::make_unique_for_overwrite<std::byte[]>(landing.bytes);
  std::memcpy(landed.get(), slot, landing.bytes);
  const auto at = [](const std::byte* base, std::uint64_t offset) {
    return offset == Weight::kNoPlane ? nullptr : base + offset;
  };
  for (std::size_t i = 0; i < expert.matrices.size(); ++i) {
    const Matrix& m = expert.matrices[i];
    const Planes& from = landing.planes[i];
    if (landing.how[i] == nullptr) {
      const PlaneBytes bytes = plane_bytes(m.format, m.rows, m.cols, m.block_row0);
      const auto move = [&](std::size_t plane, std::uint64_t n) {
        if (n > 0) std::memcpy(slot + m.planes[plane], landed.get() + from[plane], n);
      };
      move(0, bytes.data);
      move(1, bytes.scales);
      move(2, bytes.biases);
      continue;
    }
    const StoredPlanes stored{at(landed.get(), from[0]), at(landed.get(), from[1]),
                              at(landed.get(), from[2])};
    const WeightView rows{.format = m.format,
                          .rows = m.rows,
                          .cols = m.cols,
                          .data = at(slot, m.planes[0]),
                          .scales = at(slot, m.planes[1]),
                          .biases = at(slot, m.planes[2])};
    if (!repack_rows(*landing.how[i], stored, rows, 0, m.rows)) refuse_zero_points(name(key));
  }
}

void ExpertStore::check(const Expert& expert, const std::byte* slot) const {
  if (expert.record == nullptr) return;
  const std::span bytes(slot + expert.record_slot_offset, expert.record->extent.bytes);
  if (checksum(bytes) != expert.record->checksum) {
    fail(Errc::Io,
         "{}: {} is damaged: its checksum does not match; run `moeflux check` and restore the file",
         source_->path(), expert.record->name);
  }
}

std::string ExpertStore::name(ExpertKey key) const {
  return fmt::format("expert {} of {}", key.expert, names_[static_cast<std::size_t>(key.bank)]);
}

}  // namespace moeflux
