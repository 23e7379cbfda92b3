// A synthetic model as MLX safetensors in shards of at most 5 GB, as released.
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "convert/synth/synth_files.h"
#include "families/family.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kShardBytes = 5'000'000'000;

struct Tensor {
  SynthPlane plane;  // with the dimension of experts, if it has one
  SynthRegion region;
};

SynthRegion stacked_region(const SynthExpertPlane& plane, int n_experts) {
  const std::uint64_t unit = plane.plane().bytes;
  return {.offset = 0,
          .bytes = unit * static_cast<std::uint64_t>(n_experts),
          .unit = unit,
          .fill = [&plane, unit](std::uint64_t at, std::span<std::byte> out) {
            auto expert = static_cast<int>(at / unit);
            for (std::uint64_t done = 0; done < out.size(); done += unit, ++expert) {
              plane.fill(expert, out.subspan(done, unit));
            }
          }};
}

Tensor stacked_tensor(const SynthExpertPlane& plane, int n_experts) {
  Tensor tensor{plane.plane(), stacked_region(plane, n_experts)};
  tensor.plane.shape.insert(tensor.plane.shape.begin(), n_experts);
  tensor.plane.bytes = tensor.region.bytes;
  return tensor;
}

std::string header_of(const std::vector<Tensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "mlx"}}}};
  std::uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    header[tensor.plane.name] = {{"dtype", dtype_name(tensor.plane.dtype)},
                                 {"shape", tensor.plane.shape},
                                 {"data_offsets", {end, end + tensor.plane.bytes}}};
    end += tensor.plane.bytes;
  }
  // MLX does not align what follows, and neither do we: readers must live with it.
  return dump_json(header);
}

SynthFile shard_of(std::vector<Tensor> tensors) {
  const std::string json = header_of(tensors);
  std::string head;
  for (int i = 0; i < 8; ++i) {
    head += static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 0xFF);
  }
  head += json;
  SynthFile file{.name = {}, .bytes = head.size(), .regions = {}};
  file.regions.push_back({.offset = 0,
                          .bytes = head.size(),
                          .unit = 1,
                          .fill = [head](std::uint64_t at, std::span<std::byte> out) {
                            const auto bytes =
                                std::as_bytes(std::span(head)).subspan(at, out.size());
                            std::copy(bytes.begin(), bytes.end(), out.begin());
                          }});
  for (Tensor& tensor : tensors) {
    tensor.region.offset = file.bytes;
    file.bytes += tensor.region.bytes;
    file.regions.push_back(std::move(tensor.region));
  }
  return file;
}

// Shards in order, and the index of which tensor is where.
class Sharder {
 public:
  void add(Tensor tensor) {
    if (bytes_ > 0 && bytes_ + tensor.plane.bytes > kShardBytes) close();
    bytes_ += tensor.plane.bytes;
    total_ += tensor.plane.bytes;
    names_.emplace_back(tensor.plane.name, files_.size());
    open_.push_back(std::move(tensor));
  }

  std::vector<SynthFile> finish() {
    close();
    for (std::size_t i = 0; i < files_.size(); ++i) {
      files_[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_.size());
    }
    return files_;
  }

  std::string index() const {
    Json map = Json::object();
    for (const auto& [name, file] : names_) map[name] = files_[file].name;
    return dump_json({{"metadata", {{"total_size", total_}}}, {"weight_map", std::move(map)}}, 1) +
           "\n";
  }

 private:
  void close() {
    if (!open_.empty()) files_.push_back(shard_of(std::exchange(open_, {})));
    bytes_ = 0;
  }

  std::vector<Tensor> open_;
  std::uint64_t bytes_ = 0, total_ = 0;
  std::vector<SynthFile> files_;
  std::vector<std::pair<std::string, std::size_t>> names_;
};

// What regions refer to, and the shards they are in.
struct MlxFiles {
  explicit MlxFiles(const SynthJob& job)
      : dense(dense_planes(job.plan, job.options.statistics.seed)) {
    for (const SynthDense& tensor : dense) sharder.add({tensor.plane(), dense_region(tensor, 0)});
    banks.reserve(job.plan.banks.size());
    for (const SynthBank& bank : job.plan.banks) {
      n_experts += static_cast<std::uint64_t>(bank.n_experts);
      const auto& planes = banks.emplace_back(expert_planes(bank, job.options.statistics.seed));
      for (const SynthExpertPlane& plane : planes)
        sharder.add(stacked_tensor(plane, bank.n_experts));
    }
    files = sharder.finish();
  }
  MlxFiles(const MlxFiles&) = delete;
  MlxFiles& operator=(const MlxFiles&) = delete;

  std::vector<SynthDense> dense;
  std::vector<std::vector<SynthExpertPlane>> banks;
  std::uint64_t n_experts = 0;
  Sharder sharder;
  std::vector<SynthFile> files;
};

bool is_mlx_file(std::string_view name) {
  return parse_shard_number(name).has_value() || name == "model.safetensors.index.json" ||
         name == "config.json";
}

}  // namespace

void write_synth_mlx_outline(const SynthJob& job) {
  const MlxFiles mlx(job);
  const auto write = [&](const std::string& name, std::string_view bytes, std::uint64_t size) {
    const std::string path = job.directory + "/" + name;
    std::ofstream out(path, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    std::error_code error;
    if (out) std::filesystem::resize_file(path, size, error);
    if (!out || error) fail(Errc::Io, "{}: cannot be written", path);
  };
  for (const SynthFile& file : mlx.files) {
    const SynthRegion& head = file.regions.front();
    std::string bytes(head.bytes, '\0');
    head.fill(0, std::as_writable_bytes(std::span(bytes)));
    write(file.name, bytes, file.bytes);
  }
  for (const TextFile& file : job.text) write(file.name, file.content, file.content.size());
  const std::string index = mlx.sharder.index(), config = dump_json(job.plan.config, 1) + "\n";
  write("model.safetensors.index.json", index, index.size());
  write("config.json", config, config.size());
}

SynthReport write_synth_mlx(const SynthJob& job) {
  const auto start = std::chrono::steady_clock::now();
  const MlxFiles mlx(job);
  const std::vector<SynthFile>& files = mlx.files;

  SynthFileWriter writer(job, files, is_mlx_file);
  writer.write(files);
  for (const TextFile& file : job.text) writer.write_text(file.name, file.content);
  writer.write_text("model.safetensors.index.json", mlx.sharder.index());
  writer.write_text("config.json", dump_json(job.plan.config, 1) + "\n");
  describe_model(*open_source(job.directory));
  return {.bytes = job.plan.bytes,
          .n_tensors = mlx.dense.size(),
          .n_experts = mlx.n_experts,
          .write_seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace moeflux
