#include "engine/model_plan.h"

#include <algorithm>

#include "base/memory_limits.h"
#include "base/processors.h"
#include "experts/streamer.h"
#include "io/make_reader.h"
#include "io/measure_reader.h"

namespace moeflux {

std::uint64_t memory_ceiling(const EngineOptions& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  return default_ram_budget(read_memory_limits());
}

std::uint64_t device_ceiling(const EngineOptions& options) {
  const BackendInfo& backend = find_backend(options.device);
  if (backend.free_memory == nullptr) return 0;
  return options.device_bytes > 0 ? options.device_bytes : backend.free_memory();
}

std::int64_t session_length(const EngineOptions& options, const ModelConfig& config) {
  const std::int64_t wanted = options.context_length > 0 ? options.context_length : kDefaultContext;
  return std::min<std::int64_t>(wanted, config.context_length);
}

MemoryPlan plan_engine(const ModelConfig& config, const ModelSizes& sizes,
                       const EngineOptions& options, std::uint64_t reader_bytes) {
  const int reads_at_once = options.reads_at_once.value_or(kMostReadsAtOnce);
  return plan_memory(
      config, sizes,
      {.backend = &find_backend(options.device),
       .memory_bytes = memory_ceiling(options),
       .device_bytes = device_ceiling(options),
       .context_length = session_length(options, config),
       .kv_type = options.kv_type,
       .n_sessions = options.n_sessions,
       .n_checkpoints = options.n_checkpoints,
       .max_drafts = options.max_drafts,
       .max_batch = options.max_batch,
       .reader_bytes = reader_bytes,
       .tier_slots =
           find_backend(options.device).is_reached_by_host ? 0 : tier_slots(reads_at_once),
       .n_threads = thread_count_or_default(options.n_threads),
       .other_bytes = options.other_bytes});
}

namespace {

// Opens a model as far as its plan needs it.
class Planner {
 public:
  Planner(const std::string& path, const ReaderOptions& reader)
      : source_(open_source(path)),
        model_(describe_model(*source_)),
        sizes_(
            measure_sizes(*source_, model_, ExpertStore(source_, model_.index.experts).classes())),
        reader_bytes_(make_reader(source_->disk_paths(), reader)->info().memory_bytes) {}

  const ModelConfig& config() const { return model_.config; }
  MemoryPlan plan(const EngineOptions& options) const {
    return plan_engine(model_.config, sizes_, options, reader_bytes_);
  }

 private:
  std::shared_ptr<const ModelSource> source_;
  ModelDescription model_;
  ModelSizes sizes_;
  std::uint64_t reader_bytes_;
};

}  // namespace

std::int64_t fitting_context(const std::string& path, const EngineOptions& options) {
  if (options.context_length > 0) return options.context_length;
  constexpr std::int64_t kSteps = 8;
  const Planner planner(path, options.reader);
  const std::int64_t usual = session_length(options, planner.config());
  EngineOptions tried = options;
  for (std::int64_t step = kSteps; step > 1; --step) {
    tried.context_length = usual * step / kSteps;
    if (planner.plan(tried).fits()) return tried.context_length;
  }
  return 0;
}

MemoryPlan plan_model(const std::string& path, const EngineOptions& options) {
  return Planner(path, options.reader).plan(options);
}

}  // namespace moeflux
