#include "convert/container_writer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "source/checkpoint_files.h"
#include "source/checksum.h"
#include "source/container.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunkBytes = 8u << 20;

// What a writer leaves in its directories besides text files.
bool is_our_file(std::string_view name) {
  if (name.ends_with(kPartSuffix)) name.remove_suffix(kPartSuffix.size());
  return name == "dense.bin" || name == kChecksumsFile || name == kManifestFile ||
         name == kProgressFile || (name.starts_with("experts-") && name.ends_with(".bin"));
}

void remove_file(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail(Errc::Io, "{}: cannot remove it: {}", path, error.message());
}

Json header_of(const WriterOptions& options, const ContainerSpec& spec) {
  Json stripes = Json::array();
  for (const StripeShare& stripe : spec.stripes) {
    stripes.push_back({{"directory", stripe.directory}, {"weight", stripe.weight}});
  }
  return {{"identity", options.identity}, {"stripes", std::move(stripes)}};
}

}  // namespace

std::optional<Json> unfinished_header(const std::string& directory) {
  auto found = read_progress(fmt::format("{}/{}", directory, kProgressFile));
  if (!found) return std::nullopt;
  return std::move(found->header);
}

ContainerWriter::ContainerWriter(std::string directory, const ContainerSpec& spec,
                                 WriterOptions options)
    : directory_(std::move(directory)), manifest_(lay_out(spec)), options_(std::move(options)) {
  tensors_done_.resize(manifest_.tensors.size());
  records_done_.resize(manifest_.n_records());
  checksums_.resize(manifest_.n_records());
  notes_.resize(manifest_.n_records());
  new_directories_.create(directory_);
  lock_.emplace(directory_);
  for (const StripeShare& stripe : spec.stripes) {
    new_directories_.create((fs::path(directory_) / stripe.directory).string());
  }
  prepare_directories(options_);

  const std::optional<FoundProgress> found = read_progress(path(kProgressFile));
  if (found) resume(*found);
  published_ = holds_container(directory_);
  if (published_) return;  // an earlier writer was killed at its very end
  check_space(found.has_value());
  if (found) {
    log_.emplace(path(kProgressFile), found->bytes);
  } else {
    log_.emplace(path(kProgressFile), header_of(options_, spec));
  }
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    std::vector<OutputFile>& parts = files_.emplace_back();
    for (const DataFile& file : data_files(manifest_, i, directory_)) {
      parts.emplace_back(file.path, file.bytes, OutputFile::Mode::Resume);
    }
  }
  sync_directories();  // before the log says of anything in these files that it is done
}

void ContainerWriter::check_space(bool resuming) const {
  std::vector<DataFile> all;
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    for (DataFile& file : data_files(manifest_, i, directory_)) {
      if (!resuming && file_exists(file.path)) {
        fail(Errc::BadInput,
             "{}: is already there; give another directory, or --force to replace it", file.path);
      }
      all.push_back(std::move(file));
    }
  }
  check_disk_space(all, options_.free);
}

ContainerWriter::~ContainerWriter() {
  // What is complete need not be done again after an error.
  try {
    const std::lock_guard lock(mutex_);
    checkpoint();
  } catch (const std::exception&) {  // the disk is full or gone; the next writer does more again
  }
}

// Where the conversion that was begun in the directory keeps its stripes, and the files of the
// container that is there; none when that cannot be told.
std::set<std::string> ContainerWriter::places_of_old() const {
  std::set<std::string> paths;
  if (const auto header = unfinished_header(directory_)) {
    for (const Json& stripe : header->value("stripes", Json::array())) {
      paths.insert((fs::path(directory_) / stripe.value("directory", "")).string());
    }
  }
  if (!holds_container(directory_)) return paths;
  try {
    const auto old = parse_manifest(read_text_file(path(kManifestFile)), path(kManifestFile));
    for (std::size_t i = 0; i < old.files.size(); ++i) {
      for (const DataFile& file : data_files(old, i, directory_)) paths.insert(file.path);
    }
  } catch (const Error&) {  // damaged: one reason to start over
  }
  return paths;
}

// Removes what this container replaces, once it is known that there is room for it.
void ContainerWriter::start_over() {
  std::set<std::string> replaced;
  for (const std::string& name : list_files(directory_)) {
    if (is_our_file(name)) replaced.insert(path(name));
  }
  const std::set<std::string> of_old = places_of_old();
  std::vector<DataFile> wanted;
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    for (DataFile& file : data_files(manifest_, i, directory_)) {
      const bool elsewhere = !manifest_.files[i].stripes.empty();
      if (file_exists(file.path)) {
        const std::string place = fs::path(file.path).parent_path().string();
        if (elsewhere && !of_old.contains(file.path) && !of_old.contains(place)) {
          fail(Errc::BadInput,
               "{}: is already there and does not belong to the container in {}; give another "
               "directory to --stripe, or remove the file",
               file.path, directory_);
        }
        replaced.insert(file.path);
      }
      wanted.push_back(std::move(file));
    }
  }
  check_disk_space(wanted, options_.free, {replaced.begin(), replaced.end()});
  remove_file(path(kManifestFile));  // first: from here on nothing opens
  sync_directory(directory_);
  remove_file(path(kProgressFile));
  for (const std::string& file : replaced) remove_file(file);
}

// The directory may hold nothing, or this container under construction.
void ContainerWriter::prepare_directories(const WriterOptions& options) {
  const std::optional<FoundProgress> found = read_progress(path(kProgressFile));
  if (options.start_over) return start_over();
  const bool ours = found && found->header.value("identity", Json()) == options.identity;
  if (holds_container(directory_) && !ours) {
    fail(Errc::BadInput,
         "{}: holds a container already; give another directory, or --force to "
         "replace it",
         directory_);
  }
  if (found && !ours) {
    fail(Errc::BadInput,
         "{}: holds an unfinished conversion from another source or with other options; give "
         "those again to resume it, or --force to start over",
         directory_);
  }
  if (found) return;
  for (const std::string& name : list_files(directory_)) {
    // A writer that was killed before it had begun.
    if (name == fmt::format("{}{}", kProgressFile, kPartSuffix)) continue;
    fail(Errc::BadInput,
         "{}: is not empty (it has {}); give an empty directory, or --force to "
         "write into it all the same",
         directory_, name);
  }
}

void ContainerWriter::resume(const FoundProgress& found) {
  for (const DonePiece& piece : found.pieces) {
    const auto index = static_cast<std::size_t>(piece.index);
    if (piece.bank < 0) {
      if (index >= tensors_done_.size()) continue;
      if (!tensors_done_[index]) resumed_bytes_ += manifest_.tensors[index].bytes;
      tensors_done_[index] = true;
      manifest_.tensors[index].checksum = piece.checksum;
    } else {
      const auto bank = static_cast<std::size_t>(piece.bank);
      if (bank >= manifest_.banks.size() || piece.index >= manifest_.banks[bank].n_experts)
        continue;
      const std::size_t record = manifest_.banks[bank].first_checksum + index;
      if (!records_done_[record]) resumed_bytes_ += manifest_.banks[bank].record_bytes;
      records_done_[record] = true;
      checksums_[record] = piece.checksum;
      notes_[record] = piece.note;
    }
  }
}

bool ContainerWriter::has_tensor(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return tensors_done_[index];
}

bool ContainerWriter::has_record(std::size_t bank, std::int64_t expert) const {
  const std::lock_guard lock(mutex_);
  return records_done_[manifest_.banks[bank].first_checksum + static_cast<std::size_t>(expert)];
}

std::string ContainerWriter::record_note(std::size_t bank, std::int64_t expert) const {
  const std::lock_guard lock(mutex_);
  return notes_[manifest_.banks[bank].first_checksum + static_cast<std::size_t>(expert)];
}

void ContainerWriter::write_tensor(std::size_t index, const Fill& fill) {
  const ContainerTensor& tensor = manifest_.tensors[index];
  const auto file = static_cast<std::size_t>(tensor.file);
  std::vector<std::byte> chunk(std::min<std::uint64_t>(tensor.bytes, kChunkBytes));
  ChecksumStream sum;
  for (std::uint64_t at = 0; at < tensor.bytes; at += chunk.size()) {
    const std::span part(chunk.data(), std::min<std::uint64_t>(tensor.bytes - at, chunk.size()));
    fill(at, part);
    sum.add(part);
    files_[file].front().write(tensor.offset + at, part);
  }
  const std::lock_guard lock(mutex_);
  complete({.bank = -1, .index = static_cast<std::int64_t>(index), .checksum = sum.value()},
           tensor.bytes, file);
}

void ContainerWriter::write_record(std::size_t bank, std::int64_t expert,
                                   std::span<const std::byte> record, const std::string& note) {
  const ContainerBank& to = manifest_.banks[bank];
  MOEFLUX_ASSERT(expert >= 0 && expert < to.n_experts && record.size() == to.record_bytes);
  MOEFLUX_ASSERT(note.find('\n') == std::string::npos);
  const auto file = static_cast<std::size_t>(to.file);
  const std::vector<ContainerStripe>& stripes = manifest_.files[file].stripes;
  std::size_t at = 0;
  for (std::size_t part = 0; part < files_[file].size(); ++part) {
    const std::uint64_t share = stripes.empty() ? record.size() : stripes[part].bytes_per_record;
    files_[file][part].write(static_cast<std::uint64_t>(expert) * share, record.subspan(at, share));
    at += share;
  }
  const std::uint64_t sum = checksum(record);
  const std::lock_guard lock(mutex_);
  complete({.bank = static_cast<int>(bank), .index = expert, .checksum = sum, .note = note},
           record.size(), file);
}

void ContainerWriter::complete(DonePiece piece, std::uint64_t bytes, std::size_t file) {
  const auto index = static_cast<std::size_t>(piece.index);
  if (piece.bank < 0) {
    tensors_done_[index] = true;
    manifest_.tensors[index].checksum = piece.checksum;
  } else {
    const std::size_t record =
        manifest_.banks[static_cast<std::size_t>(piece.bank)].first_checksum + index;
    records_done_[record] = true;
    checksums_[record] = piece.checksum;
    notes_[record] = piece.note;
  }
  pending_.push_back(std::move(piece));
  pending_bytes_ += bytes;
  dirty_.insert(file);
  if (pending_bytes_ >= options_.checkpoint_bytes) checkpoint();
}

void ContainerWriter::checkpoint() {
  if (pending_.empty() || !log_) return;
  for (const std::size_t file : dirty_) {
    for (const OutputFile& part : files_[file]) part.sync();
  }
  log_->append(pending_);
  for (const std::size_t file : dirty_) {
    for (const OutputFile& part : files_[file]) part.drop_cache();
  }
  pending_.clear();
  dirty_.clear();
  pending_bytes_ = 0;
}

void ContainerWriter::write_text(const std::string& name, std::string_view content) {
  MOEFLUX_ASSERT(is_plain_file_name(name) && !is_our_file(name));
  if (published_) return;
  write_whole_file(path(name), content);
  manifest_.texts.push_back({name, content.size(), checksum(content)});
}

void ContainerWriter::finish(const ScrubOptions& verify,
                             const std::function<void(const ModelSource&)>& accept) {
  const std::lock_guard lock(mutex_);
  const auto all = [](const std::vector<bool>& done) {
    return std::find(done.begin(), done.end(), false) == done.end();
  };
  MOEFLUX_ASSERT(all(tensors_done_) && all(records_done_));
  if (published_) {
    const std::string text = read_text_file(path(kManifestFile));
    manifest_ = parse_manifest(text, path(kManifestFile));
    remove_file(path(kProgressFile));
    lock_.reset();
    return;
  }
  checkpoint();
  manifest_.fingerprint = container_fingerprint(manifest_, checksums_);
  write_whole_file(path(kChecksumsFile), checksums_file(checksums_));

  const auto written = open_container(directory_, manifest_);
  const ScrubReport report = scrub(*written, verify);
  if (!report.damage.empty()) {
    fail(Errc::Io,
         "{}: {} was written but does not read back the same ({}); the drive or the memory is "
         "faulty. --force starts over",
         report.damage.front().path, report.damage.front().name, report.damage.front().what);
  }
  if (accept) accept(*written);
  sync_directories();
  write_whole_file(path(kManifestFile), manifest_text(manifest_));
  log_.reset();
  remove_file(path(kProgressFile));
  lock_.reset();
}

// A file whose name is lost with the power is lost, though its bytes were synced.
void ContainerWriter::sync_directories() const {
  std::set<std::string> directories{directory_};
  for (const auto& parts : files_) {
    for (const OutputFile& part : parts) {
      directories.insert(fs::path(part.path()).parent_path().string());
    }
  }
  for (const std::string& directory : directories) sync_directory(directory);
}

std::string ContainerWriter::path(std::string_view name) const {
  return fmt::format("{}/{}", directory_, name);
}

}  // namespace moeflux
