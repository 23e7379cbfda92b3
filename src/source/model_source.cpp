#include "source/model_source.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"

namespace moeflux {

SourceFile::SourceFile(File file) : path_(file.path()), size_(file.size()), record_bytes_(size_) {
  stripes_.push_back({std::move(file), size_});
}

SourceFile::SourceFile(std::string path, std::uint64_t n_records, std::vector<Stripe> stripes)
    : path_(std::move(path)), stripes_(std::move(stripes)) {
  for (const Stripe& stripe : stripes_) {
    std::uint64_t expected = 0;
    const bool fits = !__builtin_mul_overflow(n_records, stripe.bytes_per_record, &expected) &&
                      !__builtin_add_overflow(size_, expected, &size_);
    if (!fits || stripe.file.size() != expected) {
      fail(Errc::BadInput,
           "{}: has {} bytes, but {} records of {} bytes are expected; it is truncated or belongs "
           "to another container",
           stripe.file.path(), stripe.file.size(), n_records, stripe.bytes_per_record);
    }
    MOEFLUX_ASSERT(stripe.bytes_per_record > 0);
    record_bytes_ += stripe.bytes_per_record;
  }
  MOEFLUX_ASSERT(!stripes_.empty());
}

void SourceFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  for_each_piece(offset, out.size(), [&](int index, std::uint64_t at, std::uint64_t bytes) {
    part(index).read(at, out.subspan(done, bytes));
    done += bytes;
  });
}

namespace {

// Far above any real tensor, and low enough that sums and small multiples of sizes cannot overflow.
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 40;

}  // namespace

// Zero dimensions count as one for the overflow check, so that no order of dimensions lets an
// absurd shape through.
std::uint64_t stored_bytes(const std::string& file, const std::string& name, const TensorInfo& t) {
  const BlockShape block =
      t.blocks == BlockType::None
          ? BlockShape{.values = 1, .bytes = static_cast<std::int64_t>(dtype_size(t.dtype))}
          : block_shape(t.blocks);
  auto bytes = static_cast<std::uint64_t>(block.bytes);
  std::uint64_t widest = bytes;
  for (const std::int64_t n : t.shape) {
    const auto dim = static_cast<std::uint64_t>(n);
    if (n < 0 || n > kMaxDimension ||
        __builtin_mul_overflow(widest, std::max<std::uint64_t>(dim, 1), &widest)) {
      fail(Errc::BadInput, "{}: tensor \"{}\" has the impossible shape {}", file, name,
           shape_text(t.shape));
    }
    bytes *= dim;
  }
  if (block.values > 1 && (t.shape.empty() || t.shape.back() % block.values != 0)) {
    fail(Errc::BadInput, "{}: tensor \"{}\" has rows of {}, which are no whole blocks of {} ({})",
         file, name, t.shape.empty() ? 1 : t.shape.back(), block.values, block_type_name(t.blocks));
  }
  return bytes / static_cast<std::uint64_t>(block.values);
}

namespace {

// Bytes from the first element to the last one, gaps between slices included.
bool checked_span(const TensorInfo& t, std::uint64_t& span) {
  span = t.bytes;
  if (t.bytes == 0 || t.shape.empty()) return true;
  const auto steps = static_cast<std::uint64_t>(t.shape.front()) - 1;
  return !__builtin_mul_overflow(steps, t.slice_stride, &span) &&
         !__builtin_add_overflow(span, t.slice_bytes(), &span);
}

}  // namespace

std::uint64_t TensorInfo::slice_bytes() const {
  if (shape.empty() || shape.front() == 0) return bytes;
  return bytes / static_cast<std::uint64_t>(shape.front());
}

bool TensorInfo::contiguous() const {
  return slice_stride == slice_bytes() || (!shape.empty() && shape.front() <= 1);
}

Extent TensorInfo::extent() const {
  MOEFLUX_ASSERT(contiguous());
  return {file, offset, bytes};
}

const TensorInfo* ModelSource::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const UnreadTensor* ModelSource::find_unread(std::string_view name) const {
  const auto it = unread_.find(name);
  return it == unread_.end() ? nullptr : &it->second;
}

void ModelSource::read(const Extent& extent, std::span<std::byte> out) const {
  MOEFLUX_ASSERT(extent.file >= 0 && extent.file < n_files());
  MOEFLUX_ASSERT(out.size() == extent.bytes);
  file(extent.file).read(extent.offset, out);
}

const File& ModelSource::disk_file(int index) const {
  const DiskFile& at = disk_files_[static_cast<std::size_t>(index)];
  return file(at.file).part(at.part);
}

std::vector<std::string> ModelSource::disk_paths() const {
  std::vector<std::string> paths;
  for (int i = 0; i < n_disk_files(); ++i) paths.push_back(disk_file(i).path());
  return paths;
}

std::vector<DiskPiece> ModelSource::locate(const Extent& extent) const {
  MOEFLUX_ASSERT(extent.file >= 0 && extent.file < n_files());
  const int first = first_disk_file_[static_cast<std::size_t>(extent.file)];
  std::vector<DiskPiece> pieces;
  file(extent.file)
      .for_each_piece(extent.offset, extent.bytes,
                      [&](int part, std::uint64_t offset, std::uint64_t bytes) {
                        pieces.push_back({first + part, offset, bytes});
                      });
  return pieces;
}

const Record* ModelSource::find_record(const Extent& extent) const {
  // The first record that begins behind the extent's first byte; the one before it may hold it.
  const auto behind = std::upper_bound(
      records_.begin(), records_.end(), extent, [](const Extent& e, const Record& r) {
        return std::pair(e.file, e.offset) < std::pair(r.extent.file, r.extent.offset);
      });
  if (behind == records_.begin()) return nullptr;
  const Record& record = *std::prev(behind);
  const bool inside = record.extent.file == extent.file && extent.bytes <= record.extent.bytes &&
                      extent.offset - record.extent.offset <= record.extent.bytes - extent.bytes;
  return inside ? &record : nullptr;
}

int ModelSource::add_file(SourceFile file) {
  first_disk_file_.push_back(n_disk_files());
  for (int part = 0; part < file.n_parts(); ++part) disk_files_.push_back({n_files(), part});
  files_.push_back(std::move(file));
  return n_files() - 1;
}

void ModelSource::set_records(std::vector<Record> records) {
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::pair(a.extent.file, a.extent.offset) < std::pair(b.extent.file, b.extent.offset);
  });
  const Record* last = nullptr;
  for (const Record& record : records) {
    const Extent& at = record.extent;
    MOEFLUX_ASSERT(at.file >= 0 && at.file < n_files());
    const SourceFile& in = file(at.file);
    if (at.bytes > in.size() || at.offset > in.size() - at.bytes) {
      fail(Errc::BadInput, "{}: \"{}\" takes {} bytes from byte {}, but the file has only {} bytes",
           in.path(), record.name, at.bytes, at.offset, in.size());
    }
    if (last != nullptr && last->extent.file == at.file &&
        last->extent.offset + last->extent.bytes > at.offset) {
      fail(Errc::BadInput, "{}: \"{}\" and \"{}\" overlap", in.path(), last->name, record.name);
    }
    last = &record;
  }
  records_ = std::move(records);
}

void ModelSource::add_tensor(const std::string& name, TensorInfo tensor) {
  MOEFLUX_ASSERT(tensor.file >= 0 && tensor.file < n_files());
  const SourceFile& in = file(tensor.file);
  const std::uint64_t needed = stored_bytes(in.path(), name, tensor);
  if (tensor.bytes != needed) {
    fail(Errc::BadInput, "{}: tensor \"{}\" has {} bytes, but {} {} needs {}", in.path(), name,
         tensor.bytes, dtype_name(tensor.dtype), shape_text(tensor.shape), needed);
  }
  if (tensor.slice_stride == 0) tensor.slice_stride = tensor.slice_bytes();
  MOEFLUX_ASSERT(tensor.slice_stride >= tensor.slice_bytes());

  std::uint64_t span = 0;
  if (!checked_span(tensor, span) || tensor.offset > in.size() ||
      span > in.size() - tensor.offset) {
    fail(Errc::BadInput,
         "{}: tensor \"{}\" takes {} bytes from byte {}, but the file has only {} bytes; it is "
         "truncated or damaged, fetch it again",
         in.path(), name, span, tensor.offset, in.size());
  }
  refuse_taken(name, tensor.file);
  tensors_.emplace(name, std::move(tensor));
}

void ModelSource::add_unread_tensor(const std::string& name, UnreadTensor tensor) {
  refuse_taken(name, tensor.file);
  unread_.emplace(name, std::move(tensor));
}

void ModelSource::refuse_taken(const std::string& name, int file_index) const {
  const TensorInfo* tensor = find(name);
  const UnreadTensor* unread = find_unread(name);
  if (tensor == nullptr && unread == nullptr) return;
  fail(Errc::BadInput, "{}: tensor \"{}\" is already in {}", file(file_index).path(), name,
       file(tensor != nullptr ? tensor->file : unread->file).path());
}

void ModelSource::set_config(Json config, std::string origin) {
  config_ = std::move(config);
  config_origin_ = std::move(origin);
}

std::string_view layout_name(ModelSource::Layout layout) {
  switch (layout) {
    case ModelSource::Layout::Safetensors:
      return "safetensors";
    case ModelSource::Layout::Mlx:
      return "mlx";
    case ModelSource::Layout::FlashMoe:
      return "flash-moe";
    case ModelSource::Layout::Container:
      return "container";
    case ModelSource::Layout::Gguf:
      return "gguf";
  }
  return "?";
}

std::optional<ModelSource::Layout> parse_layout(std::string_view name) {
  using enum ModelSource::Layout;
  for (const ModelSource::Layout layout : {Safetensors, Mlx, FlashMoe, Container, Gguf}) {
    if (layout_name(layout) == name) return layout;
  }
  return std::nullopt;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace moeflux
