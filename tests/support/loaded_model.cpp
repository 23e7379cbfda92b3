#include "support/loaded_model.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "io/make_reader.h"
#include "runtime/pass_memory.h"
#include "source/gguf.h"
#include "source/safetensors.h"

namespace moeflux::test {

LoadedModel::LoadedModel(std::shared_ptr<const ModelSource> source, const LoadOptions& options)
    : options_(options),
      source_(std::move(source)),
      model_(describe_model(*source_)),
      budget_(std::uint64_t{1} << 32) {
  const BackendOptions backend_options{.isa = options.isa, .n_threads = options.n_threads};
  backend_ =
      options.make_backend ? options.make_backend(backend_options) : make_backend(backend_options);
  ExpertStore store(source_, model_.index.experts, backend_.get());
  const std::uint64_t slots =
      options.cache_slots > 0 ? options.cache_slots : store.n_experts_total();
  const std::vector<std::string> paths = source_->disk_paths();
  auto reader = options.make_reader ? options.make_reader(paths) : make_reader(paths);
  weights_ = std::make_unique<WeightStore>(*source_, model_.index.tensors, *reader, *backend_,
                                           budget_, LoadProgress());
  const std::uint64_t cache_bytes = slots * store.slot_bytes();
  experts_ = std::make_unique<ExpertStreamer>(
      std::move(store), *backend_, budget_,
      ExpertStreamer::Options{
          .cache_bytes = cache_bytes, .policy = options.cache_policy, .reader = std::move(reader)});
  forward_ = std::make_unique<Forward>(
      Forward::Parts{.config = &config(),
                     .tensors = &weights_->tensors(),
                     .backend = backend_.get(),
                     .experts = experts_.get()},
      budget_, options.max_tokens,
      measure_pass(config(), options.max_tokens, kMixerSlice).workspace_bytes);
  backend_->set_poll([this] { experts_->poll(); });
  forward_->set_lookahead(options.lookahead);
}

LoadedModel::LoadedModel(const std::string& path, const LoadOptions& options)
    : LoadedModel(open_source(path), options) {}

std::vector<float> LoadedModel::feed(Session& session, std::span<const std::int32_t> tokens,
                                     std::int64_t chunk, std::int64_t prompt_tokens) {
  const auto n_vocab = static_cast<std::size_t>(config().n_vocab);
  const std::size_t step =
      chunk > 0 ? static_cast<std::size_t>(chunk) : std::max<std::size_t>(tokens.size(), 1);
  std::vector<float> logits(tokens.size() * n_vocab);
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const Span span{.session = &session,
                    .tokens = tokens.subspan(begin, std::min(step, tokens.size() - begin)),
                    .logits_of = LogitsOf::EveryToken,
                    .logits = logits.data() + begin * n_vocab,
                    .prompt_tokens = prompt_tokens};
    if (options_.before_pass) options_.before_pass(*experts_, n_passes_);
    ++n_passes_;
    forward().run({&span, 1});
  }
  return logits;
}

Backend& host_backend() {
  static const std::unique_ptr<Backend> backend =
      make_backend({.isa = "scalar", .n_threads = 1}, "cpu");
  return *backend;
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/fixtures"))) {
    if (file_exists(entry.path().string() + "/golden.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> golden_checkpoints(const std::string& directory) {
  std::vector<std::string> names;
  if (!directory_exists(directory)) return names;
  const auto is_read = [](const std::string& type) {
    return std::any_of(families().begin(), families().end(), [&](const Family* family) {
      const auto& types = family->model_types;
      return std::find(types.begin(), types.end(), type) != types.end();
    });
  };
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string path = entry.path().string();
    if (!file_exists(path + "/golden.safetensors")) continue;
    if (holds_gguf(path)) names.push_back(entry.path().filename().string());
    if (!file_exists(path + "/config.json")) continue;
    const Json config = read_json_file(path + "/config.json");
    if (is_read(config.value("model_type", ""))) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> family_checkpoints() {
  std::vector<std::string> paths;
  for (const char* folder : {"families", "fixtures"}) {
    const std::string directory = data_path(folder);
    for (const std::string& name : golden_checkpoints(directory))
      paths.push_back(directory + "/" + name);
  }
  return paths;
}

std::vector<std::int32_t> golden_prompt(const std::string& golden_path, const std::string& key) {
  const auto file = open_tensor_file(golden_path);
  const TensorInfo* info = file->find(key);
  if (info == nullptr || info->dtype != DType::I32)
    throw std::runtime_error(golden_path + " has no " + key);
  std::vector<std::int32_t> ids(info->bytes / sizeof(std::int32_t));
  file->read(info->extent(), std::as_writable_bytes(std::span(ids)));
  return ids;
}

}  // namespace moeflux::test
