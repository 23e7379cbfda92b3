#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "source/checkpoint_files.h"
#include "source/container.h"
#include "source/flash_moe.h"
#include "source/gguf.h"
#include "source/hub_cache.h"
#include "source/model_source.h"
#include "source/safetensors.h"

namespace moeflux {
namespace {

constexpr const char* kWanted =
    "expected model.safetensors, model-*-of-*.safetensors shards, a .gguf file, a container with "
    "moeflux.json, or a flash-moe directory with model_weights.bin";

[[noreturn]] void refuse_pickle(const std::string& path) {
  fail(Errc::Unsupported,
       "{}: PyTorch pickle files are not read, they can run code; convert to safetensors", path);
}

bool is_pickle(const std::string& name) {
  return (name.starts_with("pytorch_model") && name.ends_with(".bin")) || name.ends_with(".pt") ||
         name.ends_with(".pth");
}

std::shared_ptr<const ModelSource> open_file(const std::string& path) {
  if (path.ends_with(".safetensors")) return open_safetensors_file(path);
  if (is_gguf_name(path)) return open_gguf_file(path);
  const std::string name = std::filesystem::path(path).filename().string();
  if (is_pickle(name)) refuse_pickle(path);
  fail(Errc::BadInput, "{}: not a checkpoint: give a directory, a .safetensors or a .gguf file",
       path);
}

// Says what a directory without a checkpoint does hold.
[[noreturn]] void explain_no_model(const std::string& directory) {
  const std::vector<std::string> names = list_files(directory);
  const auto any = [&](auto matches) {
    const auto it = std::find_if(names.begin(), names.end(), matches);
    return it == names.end() ? std::string() : *it;
  };
  const auto ends_with = [](const char* suffix) {
    return [suffix](const std::string& name) { return name.ends_with(suffix); };
  };
  if (const std::string name = any(ends_with(".gguf")); !name.empty()) {
    fail(Errc::NotFound,
         "{}: has {}, which is no model by itself (a projector of images, or a part "
         "without the first one)",
         directory, name);
  }
  if (const std::string name = any(is_pickle); !name.empty()) refuse_pickle(directory + "/" + name);
  if (const std::string name = any(ends_with(".safetensors")); !name.empty()) {
    fail(Errc::NotFound, "{}: no model*.safetensors here; to use {}, give its own path", directory,
         name);
  }
  for (const char* part : {"/packed_experts", "/packed_experts_2bit", "/model_weights.bin"}) {
    if (directory_exists(directory + part) || file_exists(directory + part)) {
      fail(Errc::NotFound, "{}: has {} but no model_weights.json, here or in artifacts/", directory,
           part + 1);
    }
  }
  if (std::binary_search(names.begin(), names.end(), "config.json")) {
    fail(Errc::NotFound, "{}: has a config.json but no weights; {}", directory, kWanted);
  }
  fail(Errc::NotFound, "{}: holds no model; {}", directory, kWanted);
}

}  // namespace

std::shared_ptr<const ModelSource> open_source(const std::string& path) {
  if (file_exists(path)) return open_file(path);
  if (!directory_exists(path)) fail(Errc::NotFound, "{}: no such file or directory", path);
  if (is_hub_folder(path)) {
    if (const auto snapshot = hub_snapshot(path)) return open_source(*snapshot);
    fail(Errc::NotFound,
         "{}: this model of the hub's cache was not fetched to its end; moeflux pull goes on with "
         "it",
         path);
  }
  if (holds_container(path)) return open_container(path);
  if (holds_unfinished_container(path)) {
    fail(Errc::NotFound,
         "{}: the conversion into this directory has not ended; run the same moeflux convert again "
         "to resume it",
         path);
  }
  // The extraction for flash-moe may lie beside the files it was made from.
  if (holds_flash_moe(path)) return open_flash_moe(path);
  if (holds_safetensors(path)) return open_safetensors_directory(path);
  if (holds_gguf(path)) return open_gguf_directory(path);
  explain_no_model(path);
}

}  // namespace moeflux
