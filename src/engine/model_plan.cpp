#include "engine/model_plan.h"

#include <algorithm>

#include "base/memory_limits.h"
#include "base/processors.h"
#include "experts/expert_store.h"
#include "io/make_reader.h"

namespace moeflux {

std::uint64_t memory_ceiling(const EngineOptions& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  return default_ram_budget(read_memory_limits());
}

std::int64_t session_length(const EngineOptions& options, const ModelConfig& config) {
  const std::int64_t wanted = options.context_length > 0 ? options.context_length : kDefaultContext;
  return std::min<std::int64_t>(wanted, config.context_length);
}

MemoryPlan plan_engine(const ModelConfig& config, const ModelSizes& sizes,
                       const EngineOptions& options, std::uint64_t reader_bytes) {
  return plan_memory(config, sizes,
                     {.memory_bytes = memory_ceiling(options),
                      .context_length = session_length(options, config),
                      .kv_type = options.kv_type,
                      .n_sessions = options.n_sessions,
                      .n_checkpoints = options.n_checkpoints,
                      .max_drafts = options.max_drafts,
                      .max_batch = options.max_batch,
                      .reader_bytes = reader_bytes,
                      .n_threads = thread_count_or_default(options.n_threads),
                      .other_bytes = options.other_bytes});
}

MemoryPlan plan_model(const std::string& path, const EngineOptions& options) {
  const auto source = open_source(path);
  const ModelDescription model = describe_model(*source);
  const ModelSizes sizes =
      measure_sizes(*source, model, ExpertStore(source, model.index.experts).slot_bytes());
  return plan_engine(model.config, sizes, options,
                     make_reader(source->disk_paths(), options.reader)->info().memory_bytes);
}

}  // namespace moeflux
