#include "source/safetensors.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "source/checkpoint_files.h"
#include "source/tensor_index.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A file whose header has been read. Positions in the header are relative to data_start.
struct Shard {
  File file;
  SafetensorsHeader header;
  std::uint64_t data_start = 0;
};

std::string read_header_text(const File& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) {
    fail(Errc::BadInput, "{}: {} bytes are too few for a safetensors file", file.path(),
         file.size());
  }
  static_assert(std::endian::native == std::endian::little);
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  constexpr std::uint64_t kLfsPointer = 0x206E6F6973726576;  // "version "
  if (length == kLfsPointer) {
    fail(Errc::BadInput,
         "{}: this is a Git LFS pointer, not the file it stands for; run `git lfs pull`",
         file.path());
  }
  if (length > kMaxHeaderBytes || length > file.size() - sizeof length) {
    fail(Errc::BadInput,
         "{}: the header claims {} bytes, but the file has {} and a header at most {}; it is "
         "truncated or not a safetensors file",
         file.path(), length, file.size(), kMaxHeaderBytes);
  }
  std::string text(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(text)));
  return text;
}

Shard read_shard(const std::string& path) {
  File file(path);
  const std::string text = read_header_text(file);
  const std::uint64_t data_start = sizeof(std::uint64_t) + text.size();
  SafetensorsHeader header = parse_safetensors_header(text, path);
  const auto last =
      std::max_element(header.tensors.begin(), header.tensors.end(),
                       [](const ListedTensor& a, const ListedTensor& b) { return a.end < b.end; });
  if (last != header.tensors.end() && last->end > file.size() - data_start) {
    fail(Errc::BadInput,
         "{}: truncated: tensor \"{}\" ends at byte {}, but the file has only {} bytes; fetch it "
         "again",
         path, last->name, data_start + last->end, file.size());
  }
  return {std::move(file), std::move(header), data_start};
}

// MLX marks its files; older conversions are known by a quantized matrix.
bool is_mlx(const std::vector<Shard>& shards) {
  std::set<std::string, std::less<>> scales;
  for (const Shard& shard : shards) {
    if (shard.header.format == "mlx") return true;
    for (const ListedTensor& t : shard.header.tensors) {
      if (t.name.ends_with(".scales")) scales.insert(t.name);
    }
  }
  constexpr std::string_view kWeight = ".weight";
  const auto quantized = [&](const ListedTensor& t) {
    return t.dtype == DType::U32 && t.name.ends_with(kWeight) &&
           scales.count(t.name.substr(0, t.name.size() - kWeight.size()) + ".scales") != 0;
  };
  return std::any_of(shards.begin(), shards.end(), [&](const Shard& shard) {
    return std::any_of(shard.header.tensors.begin(), shard.header.tensors.end(), quantized);
  });
}

std::shared_ptr<ModelSource> make_source(const std::string& path, std::vector<Shard> shards) {
  using Layout = ModelSource::Layout;
  auto source =
      std::make_shared<ModelSource>(path, is_mlx(shards) ? Layout::Mlx : Layout::Safetensors);
  for (Shard& shard : shards) {
    const int file = source->add_file(std::move(shard.file));
    for (ListedTensor& t : shard.header.tensors) {
      if (!t.unread_dtype.empty()) {
        source->add_unread_tensor(t.name, {.dtype = std::move(t.unread_dtype), .file = file});
        continue;
      }
      source->add_tensor(t.name, {.dtype = t.dtype,
                                  .shape = std::move(t.shape),
                                  .file = file,
                                  .offset = shard.data_start + t.begin,
                                  .bytes = t.end - t.begin});
    }
  }
  return source;
}

void load_companions(ModelSource& source, const std::string& directory) {
  const std::string config = directory + "/config.json";
  source.set_config(read_config(config), config);
  source.set_generation_config(read_generation_config({directory}));
  source.set_text(find_text_assets({directory}));
}

// Every tensor the index promises must be in the shard it names.
void check_weight_map(const std::map<std::string, std::string>& weight_map,
                      const ModelSource& source, const std::string& index) {
  for (const auto& [name, shard] : weight_map) {
    const TensorInfo* tensor = source.find(name);
    const UnreadTensor* unread = source.find_unread(name);
    const int file = tensor != nullptr ? tensor->file : unread != nullptr ? unread->file : -1;
    if (file < 0 || fs::path(source.file(file).path()).filename().string() != shard) {
      fail(Errc::NotFound, "{}: tensor \"{}\" should be in {}, but is not", index, name, shard);
    }
  }
}

std::shared_ptr<const ModelSource> open_indexed(const std::string& directory) {
  const std::string index = directory + "/" + std::string(kIndexName);
  const auto weight_map = parse_weight_map(read_text_file(index, kMaxIndexBytes), index);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map) names.insert(shard);
  if (names.empty()) fail(Errc::BadInput, "{}: \"weight_map\" names no tensor", index);

  std::vector<Shard> shards;
  for (const std::string& name : names) {
    if (!is_plain_file_name(name)) {
      fail(Errc::BadInput, "{}: \"{}\" is not the name of a file in the same directory", index,
           name);
    }
    const std::string path = fmt::format("{}/{}", directory, name);
    if (!file_exists(path)) {
      fail(Errc::NotFound, "{}: the shard {} named in {} is missing; the download is incomplete",
           directory, name, kIndexName);
    }
    shards.push_back(read_shard(path));
  }
  auto source = make_source(directory, std::move(shards));
  check_weight_map(weight_map, *source, index);
  load_companions(*source, directory);
  return source;
}

}  // namespace

bool holds_safetensors(const std::string& directory) {
  return file_exists(directory + "/" + std::string(kIndexName)) ||
         !list_model_shards(directory).empty();
}

std::shared_ptr<const ModelSource> open_safetensors_directory(const std::string& directory) {
  if (file_exists(directory + "/" + std::string(kIndexName))) return open_indexed(directory);
  const std::vector<std::string> names = list_model_shards(directory);
  check_shards_complete(directory, names);
  std::vector<Shard> shards;
  shards.reserve(names.size());
  for (const std::string& name : names) {
    shards.push_back(read_shard(fmt::format("{}/{}", directory, name)));
  }
  auto source = make_source(directory, std::move(shards));
  load_companions(*source, directory);
  return source;
}

std::shared_ptr<const ModelSource> open_safetensors_file(const std::string& path) {
  const auto number = parse_shard_number(fs::path(path).filename().string());
  if (number && number->count > 1) {
    fail(Errc::BadInput, "{}: this is one of {} shards; open the directory that holds all of them",
         path, number->count);
  }
  std::vector<Shard> shards;
  shards.push_back(read_shard(path));
  auto source = make_source(path, std::move(shards));
  const std::string directory = fs::path(path).parent_path().string();
  load_companions(*source, directory.empty() ? "." : directory);
  return source;
}

std::shared_ptr<const ModelSource> open_tensor_file(const std::string& path) {
  std::vector<Shard> shards;
  shards.push_back(read_shard(path));
  return make_source(path, std::move(shards));
}

}  // namespace moeflux
