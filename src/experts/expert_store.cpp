#include "experts/expert_store.h"

#include <algorithm>

#include "base/error.h"
#include "quant/panels.h"
#include "source/checksum.h"

namespace moeflux {
namespace {

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

ExpertStore::ExpertStore(std::shared_ptr<const ModelSource> source,
                         const std::vector<ExpertBank>& banks, bool in_panels)
    : source_(std::move(source)), in_panels_(in_panels), ids_(counts(banks)) {
  for (const ExpertBank& bank : banks) {
    names_.push_back(bank.gate.at(0).name);
    for (int e = 0; e < bank.gate.count(); ++e)
      place({bank.gate.at(e), bank.up.at(e), bank.down.at(e)});
  }
}

void ExpertStore::place(const std::array<StoredMatrix, 3>& matrices) {
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
  slot_bytes_ = std::max(slot_bytes_, static_cast<std::size_t>(used));

  const auto place_of = [&](const Extent& plane) {
    if (plane.bytes == 0) return kNone;
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) {
      return r.file == plane.file && r.begin <= plane.offset && plane.offset + plane.bytes <= r.end;
    });
    MOEFLUX_ASSERT(run != runs.end());
    return run->slot_offset + (plane.offset - run->begin);
  };
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const StoredMatrix& m = matrices[i];
    expert.matrices[i] = {m.format,
                          m.rows,
                          m.cols,
                          m.block_row0,
                          {place_of(m.data), place_of(m.scales), place_of(m.biases)}};
  }
  experts_.push_back(expert);
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

WeightView ExpertStore::stored_view(const Matrix& m, const std::byte* slot) const {
  const auto plane = [&](std::size_t i) {
    return m.planes[i] == kNone ? nullptr : slot + m.planes[i];
  };
  return {.format = m.format,
          .rows = m.rows,
          .cols = m.cols,
          .data = plane(0),
          .scales = plane(1),
          .biases = plane(2),
          .block_row0 = m.block_row0};
}

ExpertView ExpertStore::view(ExpertKey key, const std::byte* slot) const {
  const auto matrix = [&](const Matrix& m) {
    WeightView view = stored_view(m, slot);
    view.format = arranged(m.format, in_panels_);
    return view;
  };
  const Expert& expert = at(key);
  return {matrix(expert.matrices[0]), matrix(expert.matrices[1]), matrix(expert.matrices[2])};
}

void ExpertStore::prepare(ExpertKey key, std::byte* slot) const {
  const Expert& expert = at(key);
  check(expert, slot);
  for (const Matrix& m : expert.matrices) {
    if (arranged(m.format, in_panels_) == m.format) continue;
    std::vector<std::byte> scratch(panel_scratch_bytes(m.format, m.cols));
    const WeightView view = stored_view(m, slot);
    for (std::int64_t p = 0; p < n_panels(m.rows); ++p) arrange_panel(view, p, scratch);
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
