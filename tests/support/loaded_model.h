// A checkpoint made ready to run without the engine on top: what tests of the runtime work with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "experts/streamer.h"
#include "families/family.h"
#include "runtime/forward.h"
#include "runtime/weight_store.h"
#include "support/paths.h"

namespace moeflux::test {

struct LoadOptions {
  std::string isa = {};  // empty: the best there is
  int n_threads = 1;
  std::int64_t max_tokens = 128;  // of a batch
  std::int64_t max_length = 160;  // of a session
  KvType kv_type = KvType::F32;
  std::uint64_t cache_slots = 0;  // experts kept in memory; 0: all
  int lookahead = 0;
  std::string cache_policy = "lru";
  // Over the files of the source; empty: the reader that suits the machine.
  std::function<std::unique_ptr<AsyncReader>(const std::vector<std::string>&)> make_reader = {};
  // The device to compute on; empty: this machine's processors.
  std::function<std::unique_ptr<Backend>(const BackendOptions&)> make_backend = {};
  // Called before each pass with its number.
  std::function<void(ExpertStreamer&, int)> before_pass = {};
};

class LoadedModel {
 public:
  LoadedModel(std::shared_ptr<const ModelSource> source, const LoadOptions& options);
  explicit LoadedModel(const std::string& path, const LoadOptions& options = {});

  const ModelConfig& config() const { return model_.config; }
  const ModelDescription& description() const { return model_; }
  const ModelTensors<Resident>& tensors() const { return weights_->tensors(); }
  ExpertStreamer& experts() { return *experts_; }
  Forward& forward() { return *forward_; }
  MemoryBudget& budget() { return budget_; }
  Session new_session() { return new_session({options_.max_length, options_.kv_type}); }
  Session new_session(const SessionShape& shape) {
    return Session(config(), shape, *backend_, budget_);
  }
  Backend& backend() { return *backend_; }

  // The logits after every token, fed in passes of `chunk` tokens (0: all at once).
  std::vector<float> feed(Session& session, std::span<const std::int32_t> tokens,
                          std::int64_t chunk = 0, std::int64_t prompt_tokens = 0);

 private:
  LoadOptions options_;
  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<ExpertStreamer> experts_;
  std::unique_ptr<Forward> forward_;
  int n_passes_ = 0;
};

// One that computes on this machine's processors, for tests that only need its memory.
Backend& host_backend();

// The checkpoints of tests/fixtures that have golden values, and the prompt in the golden file of
// one.
std::vector<std::string> fixture_names();
// The folders of `directory` that hold a checkpoint of a family we read, and golden values. None
// where there is no such directory.
std::vector<std::string> golden_checkpoints(const std::string& directory);
// The paths of all those that tests/data and the archives of tests/fixtures unpack to.
std::vector<std::string> family_checkpoints();
std::vector<std::int32_t> golden_prompt(const std::string& golden_path,
                                        const std::string& key = "ids");

}  // namespace moeflux::test
