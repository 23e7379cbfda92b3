#include "convert/convert.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "convert/affine_quantizer.h"
#include "convert/container_writer.h"
#include "convert/convert_plan.h"
#include "convert/drives.h"
#include "convert/model_files.h"
#include "convert/output_file.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "source/checksum.h"
#include "source/container.h"
#include "source/flash_moe.h"
#include "source/gguf.h"
#include "source/read_matrix.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

// Makes the record of one expert: its planes copied from the source, or requantized. Each thread
// has a builder of its own.
class RecordBuilder {
 public:
  explicit RecordBuilder(const ModelSource& source) : source_(source) {}

  // Valid until the next call.
  std::span<const std::byte> build(const PlannedBank& bank, const ContainerBank& layout,
                                   int expert);
  // Of the last one: by matrix of the bank, zeros for those that were copied.
  std::span<const SquaredError> errors() const { return errors_; }

 private:
  void copy(const StoredMatrix& from, std::span<const ContainerPlane> planes);
  void arrange(std::span<const ContainerPlane> planes, bool is_interleaved);
  SquaredError requantize(const PlannedMatrix& matrix, int expert,
                          std::span<const ContainerPlane> planes);

  const ModelSource& source_;
  std::vector<std::byte> record_;
  std::vector<float> row_;
  std::vector<SquaredError> errors_;
};

std::span<const std::byte> RecordBuilder::build(const PlannedBank& bank,
                                                const ContainerBank& layout, int expert) {
  record_.assign(layout.record_bytes, std::byte{0});
  errors_.assign(bank.matrices.size(), {});
  std::span<const ContainerPlane> planes = layout.planes;
  for (std::size_t i = 0; i < bank.matrices.size(); ++i) {
    const PlannedMatrix& matrix = bank.matrices[i];
    const std::size_t n_planes = matrix.planes().size();
    if (matrix.requantized) {
      errors_[i] = requantize(matrix, expert, planes.first(n_planes));
    } else {
      copy(matrix.source(expert), planes.first(n_planes));
    }
    planes = planes.subspan(n_planes);
  }
  return record_;
}

void RecordBuilder::copy(const StoredMatrix& from, std::span<const ContainerPlane> planes) {
  std::size_t next = 0;
  const auto place = [&](std::uint64_t bytes) {
    const ContainerPlane& plane = planes[next++];
    MOEFLUX_ASSERT(plane.bytes == bytes);
    return std::span(record_).subspan(plane.offset, plane.bytes);
  };
  if (from.repack != nullptr) {
    const LoadedMatrix rows(source_, from);
    for (const std::span<const std::byte> plane : {rows.data(), rows.scales(), rows.biases()})
      if (!plane.empty()) std::memcpy(place(plane.size()).data(), plane.data(), plane.size());
  } else {
    for (const Extent& extent : {from.data, from.scales, from.biases})
      if (extent.bytes > 0) source_.read(extent, place(extent.bytes));
  }
  MOEFLUX_ASSERT(next == planes.size());
  arrange(planes, from.format.is_interleaved);
}

// Planes of the record that were written in rows or in interleaved tiles become what they are to
// be. The elements of codes, which come first, are dwords whatever their tensor says.
void RecordBuilder::arrange(std::span<const ContainerPlane> planes, bool is_interleaved) {
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const ContainerPlane& plane = planes[i];
    if (plane.shape.size() < 2 || plane.is_interleaved == is_interleaved) continue;
    const std::size_t element = i == 0 ? 4 : dtype_size(plane.dtype);
    const auto row_bytes = plane.bytes / static_cast<std::uint64_t>(plane.shape[0]);
    arrange_plane(record_.data() + plane.offset, plane.shape[0],
                  static_cast<std::int64_t>(row_bytes / element), element, plane.is_interleaved);
  }
}

SquaredError RecordBuilder::requantize(const PlannedMatrix& matrix, int expert,
                                       std::span<const ContainerPlane> planes) {
  const StoredMatrix from = matrix.source(expert);
  const LoadedMatrix loaded(source_, from);
  row_.resize(static_cast<std::size_t>(from.cols));
  SquaredError sums;
  for (std::int64_t row = 0; row < from.rows; ++row) {
    decode_row(loaded.view(), row, row_.data());
    if (!std::all_of(row_.begin(), row_.end(), [](float w) { return std::isfinite(w); })) {
      fail(Errc::BadInput,
           "{}: tensor \"{}\", expert {}, row {}: a weight is not finite and cannot be quantized",
           source_.path(), from.name, expert, row);
    }
    const auto at = [&](std::size_t plane) {
      const ContainerPlane& to = planes[plane];
      return record_.data() + to.offset +
             static_cast<std::uint64_t>(row) * (to.bytes / static_cast<std::uint64_t>(from.rows));
    };
    sums.add(quantize_affine_row(row_, matrix.format.bits, matrix.format.group,
                                 {.data = at(0), .scales = at(1), .biases = at(2)}));
  }
  arrange(planes, /*is_interleaved=*/false);
  return sums;
}

// The errors as text that keeps every bit, and back; those are zero when it is none.
std::string errors_text(std::span<const SquaredError> errors) {
  std::string text;
  for (const SquaredError& e : errors) {
    text += checksum_text(std::bit_cast<std::uint64_t>(e.error)) +
            checksum_text(std::bit_cast<std::uint64_t>(e.norm));
  }
  return text;
}

std::vector<SquaredError> parse_errors(const std::string& text, std::size_t count) {
  std::vector<SquaredError> errors(count);
  for (std::size_t i = 0; i < count && text.size() >= 32 * (i + 1); ++i) {
    std::uint64_t error = 0, norm = 0;
    if (!parse_checksum(text.substr(32 * i, 16), error)) break;
    if (!parse_checksum(text.substr(32 * i + 16, 16), norm)) break;
    errors[i] = {std::bit_cast<double>(error), std::bit_cast<double>(norm)};
  }
  return errors;
}

constexpr int kMaxThreads = 8;  // more would only hold more experts in memory

// Another checkpoint in the target would lose its config to ours, or be the source itself.
void refuse_checkpoints(const std::string& to) {
  if (!directory_exists(to)) return;
  if (holds_safetensors(to) || holds_flash_moe(to) || holds_gguf(to)) {
    fail(Errc::BadInput, "{}: holds a checkpoint of another layout; give another directory", to);
  }
}

// --force removes files of the names that the container will have: never the source's own.
void refuse_own_files(const ModelSource& source, const ContainerSpec& spec,
                      const std::string& given) {
  // As it will be once directories on the way have been made: "new/../model" is "model".
  const std::string to = fs::weakly_canonical(fs::absolute(given)).string();
  std::error_code ignored;
  if (fs::equivalent(source.path(), to, ignored)) {
    fail(Errc::BadInput, "{}: is the model to convert; give another directory", to);
  }
  const ContainerManifest layout = lay_out(spec);
  for (std::size_t i = 0; i < layout.files.size(); ++i) {
    for (const DataFile& file : data_files(layout, i, to)) {
      for (int j = 0; file_exists(file.path) && j < source.n_disk_files(); ++j) {
        if (fs::equivalent(file.path, source.disk_file(j).path(), ignored)) {
          fail(Errc::BadInput, "{}: belongs to the model to convert; give another directory",
               file.path);
        }
      }
    }
  }
}

// As the manifest names it: relative where it lies inside of the container, which may then move.
std::string stripe_directory(const std::string& directory, const std::string& container) {
  const fs::path path = fs::weakly_canonical(fs::absolute(directory));
  const fs::path base = fs::weakly_canonical(fs::absolute(container));
  const fs::path relative = path.lexically_relative(base);
  const bool inside = !relative.empty() && *relative.begin() != "..";
  return inside ? relative.string() : path.string();
}

struct Stripes {
  std::vector<StripeShare> shares;
  bool measured = false;
};

Stripes name_stripes(const ConvertOptions& options, const std::string& to) {
  Stripes stripes{options.stripes, false};
  std::size_t n_open = 0;
  for (StripeShare& share : stripes.shares) {
    share.directory = stripe_directory(share.directory, to);
    if (!(share.weight >= 0 && share.weight < 1e9)) {
      fail(Errc::BadInput, "{}: a stripe's share must be positive", share.directory);
    }
    n_open += share.weight == 0 ? 1 : 0;
    const auto same = std::count_if(stripes.shares.begin(), stripes.shares.end(),
                                    [&](const auto& s) { return s.directory == share.directory; });
    if (same > 1) fail(Errc::BadInput, "{}: is given as a stripe twice", share.directory);
  }
  if (n_open > 0 && n_open < stripes.shares.size()) {
    fail(Errc::BadInput, "give shares for all stripes (DIR=3,DIR=1) or for none");
  }
  stripes.measured = n_open > 0;
  return stripes;
}

// Weights that nobody gave: those an earlier run measured, else a measurement.
void measure_stripes(Stripes& stripes, const std::string& to, bool force,
                     NewDirectories& new_directories) {
  if (!stripes.measured) return;
  const std::optional<Json> header = force ? std::nullopt : unfinished_header(to);
  const Json known = header ? header->value("stripes", Json::array()) : Json::array();
  for (std::size_t i = 0; i < stripes.shares.size(); ++i) {
    StripeShare& share = stripes.shares[i];
    if (known.is_array() && i < known.size() && known[i].is_object() &&
        known[i].value("directory", Json()) == share.directory) {
      share.weight = JsonFields(known[i], to + ": convert.progress").number("weight");
    } else {
      const std::string directory = (fs::path(to) / share.directory).string();
      new_directories.create(directory);
      share.weight = measure_read_bandwidth(directory);
    }
    if (!(share.weight > 0)) fail(Errc::BadInput, "{}: a stripe has no share", share.directory);
  }
}

// Names source and options: what an unfinished conversion must agree on to be resumed.
std::string identity_of(const ModelSource& source, const ConvertPlan& plan,
                        const Stripes& stripes) {
  std::string text = fmt::format("{}\n{}\n", layout_name(source.layout()), source.fingerprint());
  for (int i = 0; source.fingerprint().empty() && i < source.n_disk_files(); ++i) {
    const File& file = source.disk_file(i);
    struct stat info {};
    ::fstat(file.descriptor(), &info);
    text += fmt::format("{} {} {}.{:09}\n", fs::path(file.path()).filename().string(), file.size(),
                        info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  for (const std::string& name : plan.dense) text += name + "\n";
  for (const PlannedBank& bank : plan.banks) {
    for (const PlannedMatrix& matrix : bank.matrices) {
      text +=
          fmt::format("{} {} {} {} {}{}\n", matrix.module, bank.n_experts, matrix.rows, matrix.cols,
                      describe(matrix.format), matrix.format.is_interleaved ? " panels" : "");
      for (const ContainerSpec::Tensor& plane : matrix.planes()) text += plane.name + "\n";
    }
  }
  for (const StripeShare& share : stripes.shares) {
    text += fmt::format("{} {}\n", share.directory, stripes.measured ? 0 : share.weight);
  }
  return checksum_text(checksum(text));
}

// The container must describe the model that the source describes.
void check_same_model(const ConvertPlan& plan, const ModelIndex& from, const ModelSource& written) {
  const ModelIndex to = describe_model(written).index;
  const DenseWeights a = dense_weights(from.tensors), b = dense_weights(to.tensors);
  bool same = a.matrices.size() == b.matrices.size() && a.vectors.size() == b.vectors.size() &&
              from.experts.size() == to.experts.size();
  for (std::size_t i = 0; same && i < a.matrices.size(); ++i) {
    const StoredMatrix &x = a.matrices[i], &y = b.matrices[i];
    same = x.name == y.name && x.format == y.format && x.rows == y.rows && x.cols == y.cols;
  }
  for (std::size_t i = 0; same && i < a.vectors.size(); ++i) {
    const StoredVector &x = a.vectors[i], &y = b.vectors[i];
    same = x.name == y.name && x.dtype == y.dtype && x.size == y.size && x.shift == y.shift;
  }
  for (std::size_t i = 0; same && i < to.experts.size(); ++i) {
    const PlannedBank& bank = plan.banks[i];
    same = to.experts[i].gate.count() == bank.n_experts &&
           to.experts[i].gate.at(0).format == bank.matrices.front().format &&
           to.experts[i].down.at(0).format == bank.matrices.back().format;
  }
  if (!same) {
    fail(Errc::Unsupported,
         "{}: the container would not be read as the model it was made from; please report the "
         "config and the tensor names of this checkpoint",
         written.path());
  }
}

void write_dense(const ModelSource& source, const ConvertPlan& plan, ContainerWriter& writer,
                 WriteMeter& meter) {
  for (std::size_t i = 0; i < plan.dense.size(); ++i) {
    if (writer.has_tensor(i)) continue;
    const Extent from = source.find(plan.dense[i])->extent();
    writer.write_tensor(i, [&](std::uint64_t offset, std::span<std::byte> out) {
      source.read({from.file, from.offset + offset, out.size()}, out);
      meter.add(out.size());
    });
  }
}

void write_experts(const ModelSource& source, const ConvertPlan& plan, ContainerWriter& writer,
                   WriteMeter& meter, int n_threads) {
  ThreadPool pool(n_threads);
  std::vector<RecordBuilder> builders(static_cast<std::size_t>(pool.size()), RecordBuilder(source));
  std::atomic<bool> failed = false;
  for (std::size_t b = 0; b < plan.banks.size(); ++b) {
    const PlannedBank& bank = plan.banks[b];
    const auto write = [&](int expert, RecordBuilder& builder) {
      const auto record = builder.build(bank, writer.layout().banks[b], expert);
      writer.write_record(b, expert, record, errors_text(builder.errors()));
      meter.add(record.size());
    };
    pool.parallel_for(bank.n_experts, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t e = begin; e < end && !failed; ++e) {
        if (writer.has_record(b, e)) continue;
        try {
          write(static_cast<int>(e), builders[static_cast<std::size_t>(worker)]);
        } catch (...) {  // the other threads need not go on
          failed = true;
          throw;
        }
      }
    });
  }
}

BankReport report_bank(const PlannedBank& bank, std::size_t index, const ContainerWriter& writer) {
  std::vector<SquaredError> sums(bank.matrices.size());
  for (int e = 0; e < bank.n_experts; ++e) {
    const auto errors = parse_errors(writer.record_note(index, e), sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add(errors[i]);
  }
  BankReport report{.name = bank.name.substr(0, bank.name.size() - 1), .matrices = {}};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const PlannedMatrix& matrix = bank.matrices[i];
    report.matrices.push_back({.projection = matrix.projection,
                               .from = describe(matrix.from.at(0)),
                               .to = describe(matrix.format),
                               .requantized = matrix.requantized,
                               .relative_error = sums[i].relative()});
  }
  return report;
}

std::uint64_t weight_bytes(const ContainerManifest& layout) {
  std::uint64_t bytes = 0;
  for (const ContainerTensor& tensor : layout.tensors) bytes += tensor.bytes;
  for (const ContainerBank& bank : layout.banks) {
    bytes += bank.record_bytes * static_cast<std::uint64_t>(bank.n_experts);
  }
  return bytes;
}

int thread_count(int wanted) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::clamp(cores, 1, kMaxThreads);
}

}  // namespace

ConvertReport convert(const std::string& from, const std::string& to,
                      const ConvertOptions& options) {
  refuse_checkpoints(to);
  const auto source = open_source(from);
  const ModelDescription model = describe_model(*source);
  const ConvertPlan plan = plan_conversion(*source, model.index, options.requantize);
  Stripes stripes = name_stripes(options, to);
  const std::string identity = identity_of(*source, plan, stripes);
  NewDirectories stripe_directories;
  measure_stripes(stripes, to, options.force, stripe_directories);

  ContainerSpec spec = plan.spec(*source);
  spec.stripes = stripes.shares;
  spec.converted_by = options.converted_by;
  refuse_own_files(*source, spec, to);
  ContainerWriter writer(to, spec,
                         {.identity = identity,
                          .start_over = options.force,
                          .checkpoint_bytes = options.checkpoint_bytes,
                          .free = options.free});
  const std::uint64_t bytes = weight_bytes(writer.layout());
  WriteMeter meter(options.progress, writer.resumed_bytes(), bytes);
  for (const TextFile& file : container_text_files(*source, plan.has_fp8)) {
    writer.write_text(file.name, file.content);
  }
  const int n_threads = thread_count(options.n_threads);
  write_dense(*source, plan, writer, meter);
  write_experts(*source, plan, writer, meter, n_threads);
  ScrubOptions verify{.n_threads = n_threads, .progress = {}};
  if (options.progress) {
    verify.progress = [&](std::uint64_t done, std::uint64_t total) {
      options.progress({ConvertProgress::Stage::Verifying, done, total});
    };
  }
  writer.finish(verify,
                [&](const ModelSource& written) { check_same_model(plan, model.index, written); });

  ConvertReport report{.fingerprint = writer.layout().fingerprint,
                       .bytes = bytes,
                       .resumed_bytes = writer.resumed_bytes(),
                       .n_tensors = plan.dense.size(),
                       .n_records = writer.layout().n_records(),
                       .stripes = stripes.shares,
                       .banks = {}};
  for (std::size_t b = 0; b < plan.banks.size(); ++b) {
    report.banks.push_back(report_bank(plan.banks[b], b, writer));
  }
  return report;
}

}  // namespace moeflux
