#include "engine/model_plan.h"

#include <algorithm>

#include "base/memory_limits.h"
#include "experts/expert_store.h"
#include "io/make_reader.h"

namespace moeflux {

MemoryPlan plan_model(const std::string& path, const EngineOptions& options) {
  const auto source = open_source(path);
  const ModelDescription model = describe_model(*source);
  const ModelSizes sizes =
      measure_sizes(*source, model, ExpertStore(source, model.index.experts).slot_bytes());
  const std::int64_t wanted = options.context_length > 0 ? options.context_length : kDefaultContext;
  return plan_memory(
      model.config, sizes,
      {.memory_bytes = options.memory_bytes > 0 ? options.memory_bytes
                                                : default_ram_budget(read_memory_limits()),
       .context_length = std::min<std::int64_t>(wanted, model.config.context_length),
       .kv_type = options.kv_type,
       .n_sessions = options.n_sessions,
       .n_checkpoints = options.n_checkpoints,
       .max_drafts = options.max_drafts,
       .max_batch = options.max_batch,
       .reader_bytes = make_reader(source->disk_paths(), options.reader)->info().memory_bytes});
}

}  // namespace moeflux
