// What `moeflux plan` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/measure/forecast.h"

namespace moeflux::cli {

// One budget and what it is worth.
struct PlannedBudget {
  std::string name;  // "floor", "25 %", "all", "budget"
  MemoryPlan plan;
  Forecast forecast;
};

struct PlanReport {
  std::string model;  // as it was given
  std::string family;
  std::string layout;
  std::int64_t context_length = 0;
  KvType kv_type = KvType::F32;
  ModelSizes sizes;
  MachineSpeed speed;
  bool measured = false;  // as opposed to given by options
  std::uint64_t recommended_bytes = 0;
  PlannedBudget budget;                // the one that was asked for, or what this machine has
  std::vector<PlannedBudget> budgets;  // for comparison
};

Json to_json(const PlanReport& report);
std::string to_text(const PlanReport& report, bool color);

}  // namespace moeflux::cli
