#include "cli/reports/plan_report.h"

#include <cmath>

#include <fmt/format.h>

#include "base/memory_budget.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr const char* kHow =
    "uniform: every expert equally likely, the worst case; typical: a curve fitted to published "
    "hit "
    "rates of conversations about one topic; mixed_topics: an eighth less";

Json number_json(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

std::string rate_text(double tokens_per_second) {
  if (!std::isfinite(tokens_per_second)) return "-";
  return fmt::format("{:.{}f}", tokens_per_second, tokens_per_second < 10 ? 2 : 0);
}

std::string size_text(double bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

Json hit_rates_json(const HitRates& rates) {
  return {{"uniform", rates.uniform}, {"typical", rates.typical}, {"mixed_topics", rates.mixed}};
}

Json budget_json(const PlannedBudget& budget) {
  const MemoryPlan& plan = budget.plan;
  const Forecast& forecast = budget.forecast;
  return {{"name", budget.name},
          {"bytes", plan.ceiling},
          {"fits", plan.fits()},
          {"used_bytes", plan.used_bytes()},
          {"cache_slots", plan.n_slots},
          {"cache_bytes", plan.cache_bytes()},
          {"hit_rate_expected", hit_rates_json(forecast.hit_rates)},
          {"disk_bytes_per_token", forecast.disk_bytes_per_token},
          {"disk_bound", forecast.typical.disk_bound()},
          {"expected_tok_s", number_json(forecast.typical.tokens_per_second())},
          {"expected_tok_s_serial", number_json(forecast.typical.serial_tokens_per_second())},
          {"expected_tok_s_uniform", number_json(forecast.uniform.tokens_per_second())},
          {"expected_tok_s_mixed_topics", number_json(forecast.mixed.tokens_per_second())},
          {"prefill_tok_s_disk", number_json(forecast.prefill_tokens_per_second)}};
}

struct Placement {
  const char* where;
  const char* what;
  std::uint64_t bytes;
  std::string remark;
};

std::vector<Placement> placements(const PlanReport& report) {
  const MemoryPlan& plan = report.budget.plan;
  std::vector<Placement> all = {
      {"memory", "dense weights", plan.dense_bytes, ""},
      {"memory", "context", plan.context_bytes,
       fmt::format("{} tokens, {}", report.context_length, kv_type_name(report.kv_type))},
      {"memory", "scratch", plan.scratch_bytes(), fmt::format("passes of {} tokens", plan.max_batch)},
      {"memory", "expert cache", plan.cache_bytes(),
       fmt::format("{} of {} experts", plan.n_slots, plan.max_slots)},
      {"drive", "routed experts", report.sizes.expert_bytes_total, ""}};
  all.push_back({"memory", "program", plan.program_bytes, "code, tokenizer, index"});
  if (plan.reader_bytes > 0) all.push_back({"memory", "reader", plan.reader_bytes, "buffers"});
  return all;
}

std::string budget_rows(const PlanReport& report) {
  std::string text = fmt::format("  {:<10}{:>11}{:>10}{:>11}{:>13}{:>9}  {}\n", "budget", "memory",
                                 "cached", "hit rate", "drive/token", "tok/s", "limited by");
  std::vector<PlannedBudget> rows;
  for (const PlannedBudget& each : report.budgets) {
    // Of a small model, what long passes take holds all experts already.
    if (each.plan.n_slots < each.plan.max_slots || each.name == "all") rows.push_back(each);
  }
  rows.push_back(report.budget);
  for (const PlannedBudget& row : rows) {
    const MemoryPlan& plan = row.plan;
    const double cached = plan.max_slots == 0 ? 1.0
                                              : static_cast<double>(plan.n_slots) /
                                                    static_cast<double>(plan.max_slots);
    text +=
        fmt::format("  {:<10}{:>11}{:>8.1f} %{:>9.1f} %{:>13}{:>9}  {}\n", row.name,
                    format_bytes(plan.ceiling), 100 * cached, 100 * row.forecast.hit_rates.typical,
                    size_text(row.forecast.disk_bytes_per_token),
                    rate_text(row.forecast.typical.tokens_per_second()),
                    !plan.fits()                        ? "too small"
                    : row.forecast.typical.disk_bound() ? "drive"
                                                        : "memory");
  }
  return text;
}

}  // namespace

Json to_json(const PlanReport& report) {
  const MemoryPlan& plan = report.budget.plan;
  const Forecast& forecast = report.budget.forecast;
  Json hit_rates = hit_rates_json(forecast.hit_rates);
  hit_rates["how"] = kHow;
  Json where = Json::array();
  for (const Placement& each : placements(report)) {
    where.push_back({{"where", each.where}, {"what", each.what}, {"bytes", each.bytes}});
  }
  Json budgets = Json::array();
  for (const PlannedBudget& each : report.budgets) budgets.push_back(budget_json(each));
  return {{"model", report.model},
          {"family", report.family},
          {"layout", report.layout},
          {"context", report.context_length},
          {"ram_bytes", plan.ceiling},
          {"fits", plan.fits()},
          {"floor_bytes", plan.floor_bytes()},
          {"recommended_bytes", report.recommended_bytes},
          {"all_bytes", plan.all_bytes()},
          {"dense_bytes", plan.dense_bytes},
          {"kv_type", kv_type_name(report.kv_type)},
          {"kv_bytes", plan.context_bytes},
          {"scratch_bytes", plan.scratch_bytes()},
          {"reader_bytes", plan.reader_bytes},
          {"expert_bytes_total", report.sizes.expert_bytes_total},
          {"experts_total", plan.max_slots},
          {"slot_bytes", plan.slot_bytes},
          {"min_slots", plan.min_slots},
          {"cache_slots", plan.n_slots},
          {"cache_bytes", plan.cache_bytes()},
          {"hit_rate_expected", std::move(hit_rates)},
          {"bytes_per_token",
           {{"total", forecast.bytes.total()},
            {"dense", forecast.bytes.dense},
            {"experts", forecast.bytes.experts},
            {"context", forecast.bytes.context},
            {"from_disk", forecast.disk_bytes_per_token}}},
          {"disk_gbps", report.speed.disk / 1e9},
          {"memory_gbps", report.speed.memory / 1e9},
          {"kernel_gbps", report.speed.kernels / 1e9},
          {"speeds_measured", report.measured},
          {"expected_tok_s", number_json(forecast.typical.tokens_per_second())},
          {"expected_tok_s_serial", number_json(forecast.typical.serial_tokens_per_second())},
          {"placement", std::move(where)},
          {"budget", budget_json(report.budget)},
          {"budgets", std::move(budgets)}};
}

std::string to_text(const PlanReport& report, bool color) {
  const MemoryPlan& plan = report.budget.plan;
  const TokenBytes& bytes = report.budget.forecast.bytes;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<14}{}\n", what, value);
  };
  line("model", fmt::format("{}, {} ({})", report.model, report.family, report.layout));
  line("floor", format_needed_bytes(plan.floor_bytes()));
  line("recommended", format_needed_bytes(report.recommended_bytes));
  line("budget", format_bytes(plan.ceiling) +
                     (plan.fits() ? "" : styled(" (below the floor)", Style::Red, color)));
  line("a token reads", fmt::format("{}: {} of dense weights, {} of experts, {} of context",
                                    size_text(bytes.total()), size_text(bytes.dense),
                                    size_text(bytes.experts), size_text(bytes.context)));
  const std::string kernels = report.speed.kernels > 0
                                  ? fmt::format(", kernels {:.1f} GB/s", report.speed.kernels / 1e9)
                                  : "";
  line("speeds",
       fmt::format("drive {:.2f} GB/s, memory {:.1f} GB/s{} ({})", report.speed.disk / 1e9,
                   report.speed.memory / 1e9, kernels, report.measured ? "measured" : "as given"));
  text += "\nwhere things go\n";
  for (const Placement& each : placements(report)) {
    text += fmt::format("  {:<10}{:<16}{:>11}{}{}\n", each.where, each.what,
                        format_bytes(each.bytes), each.remark.empty() ? "" : "   ", each.remark);
  }
  text += "\nwhat memory is worth\n" + budget_rows(report);
  text +=
      "\nTok/s are upper bounds: reading and computing overlap perfectly, and memory or the "
      "kernels\n"
      "are the limit of computing. Hit rates are typical of a conversation about one topic, some "
      "thousand "
      "tokens\n"
      "long; mixed topics have less.\n";
  return text;
}

}  // namespace moeflux::cli
