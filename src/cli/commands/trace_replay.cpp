// moeflux trace replay: what caches of several sizes and policies would have done.
#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "cli/commands/trace.h"
#include "cli/reports/svg_plot.h"
#include "cli/terminal/terminal.h"
#include "experts/replay.h"

namespace moeflux::cli {
namespace {

constexpr const char* kBound = "belady";

struct CacheSize {
  std::string label;
  std::size_t n_slots = 0;
};

struct Row {
  std::string policy;
  std::vector<ReplayResult> results;  // one per size
};

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts = split(text, ',');
  std::erase(parts, "");
  return parts;
}

// "25%" of `whole`, or a plain number; nothing when it is neither.
std::optional<double> parse_amount(const std::string& text, double whole) {
  const bool is_share = text.ends_with('%');
  const auto value = to_number<double>(text.substr(0, text.size() - (is_share ? 1 : 0)));
  if (!value || !std::isfinite(*value) || *value < 0 || (is_share && *value > 100))
    return std::nullopt;
  return is_share ? *value / 100 * whole : *value;
}

std::uint64_t slot_bytes(const TraceInfo& info) {
  std::uint64_t most = 0;
  for (const TraceLayer& layer : info.layers) most = std::max(most, layer.record_bytes);
  return most;
}

std::vector<CacheSize> parse_sizes(const std::string& list, const Trace& trace) {
  const auto n_total = static_cast<double>(trace.expert_ids().n_total());
  std::vector<CacheSize> sizes;
  for (const std::string& text : split_list(list)) {
    double slots = 0;
    if (const auto amount = parse_amount(text, n_total)) {
      slots = *amount;
    } else {
      slots = static_cast<double>(parse_size(text, "--sizes") / slot_bytes(trace.info()));
    }
    slots = std::clamp(std::round(slots), 0.0, n_total);
    if (slots < 1) throw UsageError(fmt::format("--sizes: {} holds no expert", text));
    sizes.push_back({text, static_cast<std::size_t>(slots)});
  }
  if (sizes.empty()) throw UsageError("--sizes: names no size");
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const CacheSize& a, const CacheSize& b) { return a.n_slots < b.n_slots; });
  return sizes;
}

std::vector<std::string> parse_policies(const std::string& list) {
  std::vector<std::string> names;
  if (list == "all") {
    for (const PolicyInfo& policy : policy_list()) names.emplace_back(policy.name);
    names.emplace_back(kBound);
    return names;
  }
  for (const std::string& name : split_list(list)) {
    const auto& known = policy_list();
    const bool found = std::any_of(known.begin(), known.end(),
                                   [&](const PolicyInfo& policy) { return policy.name == name; });
    if (!found && name != kBound) {
      throw UsageError(
          fmt::format("--policy: \"{}\" is none of {}, {}", name, policy_names(), kBound));
    }
    names.push_back(name);
  }
  if (names.empty()) throw UsageError("--policy: names no policy");
  return names;
}

std::int64_t parse_skip(const std::string& text, const Trace& trace) {
  const auto amount = parse_amount(text, static_cast<double>(trace.n_tokens()));
  if (!amount || *amount >= static_cast<double>(std::max<std::int64_t>(trace.n_tokens(), 1))) {
    throw UsageError(
        fmt::format("--skip: \"{}\" is no part of the trace's {} tokens", text, trace.n_tokens()));
  }
  return static_cast<std::int64_t>(*amount);
}

std::vector<Row> replay_all(const Trace& trace, const std::vector<std::string>& policies,
                            const std::vector<CacheSize>& sizes, std::int64_t skip) {
  std::vector<Row> rows;
  for (const std::string& name : policies) {
    Row& row = rows.emplace_back(Row{name, {}});
    for (const CacheSize& size : sizes) {
      const auto policy =
          name == kBound ? make_belady(trace) : make_policy(name, trace.expert_ids(), size.n_slots);
      row.results.push_back(replay(trace, *policy, {.n_slots = size.n_slots, .skip_tokens = skip}));
    }
  }
  return rows;
}

Json results_json(const Trace& trace, const std::vector<CacheSize>& sizes,
                  const std::vector<Row>& rows, std::optional<double> bandwidth) {
  Json results = Json::array();
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const ReplayResult& result = row.results[i];
      Json json = {{"policy", row.policy},
                   {"size", sizes[i].label},
                   {"slots", sizes[i].n_slots},
                   {"bytes", sizes[i].n_slots * slot_bytes(trace.info())},
                   {"hits", result.hits},
                   {"misses", result.misses},
                   {"hit_rate", result.hit_rate()},
                   {"bytes_missed", result.bytes_missed},
                   {"bytes_per_token", result.bytes_per_token()}};
      if (bandwidth) {
        const double speed = result.tokens_per_second(*bandwidth);
        json["tokens_per_second"] = std::isfinite(speed) ? Json(speed) : Json(nullptr);
      }
      results.push_back(std::move(json));
    }
  }
  return {{"model", trace.info().model},
          {"tokens", trace.n_tokens()},
          {"layers", trace.expert_ids().n_layers()},
          {"experts", trace.expert_ids().n_total()},
          {"top_k", trace.info().top_k},
          {"requests", trace.n_requests()},
          {"results", std::move(results)}};
}

template <class Value>
std::string table(const std::string& title, const std::vector<CacheSize>& sizes,
                  const std::vector<Row>& rows, Value value) {
  std::string text = fmt::format("\n{:<14}", title);
  for (const CacheSize& size : sizes) text += fmt::format("{:>10}", size.label);
  text += '\n';
  for (const Row& row : rows) {
    text += fmt::format("{:<14}", row.policy);
    for (const ReplayResult& result : row.results) text += fmt::format("{:>10}", value(result));
    text += '\n';
  }
  return text;
}

std::string results_text(const Trace& trace, const std::vector<CacheSize>& sizes,
                         const std::vector<Row>& rows, std::optional<double> bandwidth) {
  const ExpertIds& ids = trace.expert_ids();
  std::string text = fmt::format(
      "{}: {} tokens, {} layers, {} experts of {}, top {}\n", trace.info().model, trace.n_tokens(),
      ids.n_layers(), ids.n_total(), format_bytes(slot_bytes(trace.info())), trace.info().top_k);
  text += table("hits", sizes, rows, [](const ReplayResult& result) {
    return fmt::format("{:.2f} %", 100 * result.hit_rate());
  });
  text += table("read a token", sizes, rows, [](const ReplayResult& result) {
    return format_bytes(static_cast<std::uint64_t>(result.bytes_per_token()));
  });
  if (bandwidth) {
    text += table("tokens/s", sizes, rows, [&](const ReplayResult& result) {
      return fmt::format("{:.2f}", result.tokens_per_second(*bandwidth));
    });
  }
  return text;
}

std::string plot_svg(const Trace& trace, const std::vector<CacheSize>& sizes,
                     const std::vector<Row>& rows) {
  LinePlot plot;
  plot.title = fmt::format("Expert cache: {}", trace.info().model);
  plot.subtitle =
      fmt::format("{} tokens, {} layers, {} experts, top {}", trace.n_tokens(),
                  trace.expert_ids().n_layers(), trace.expert_ids().n_total(), trace.info().top_k);
  plot.x_label = "size of the cache, % of all experts";
  plot.y_label = "hits, %";
  for (const Row& row : rows) {
    LinePlot::Line& line = plot.lines.emplace_back();
    line.name = row.policy;
    line.dashed = row.policy == kBound;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      line.points.push_back({100 * static_cast<double>(sizes[i].n_slots) /
                                 static_cast<double>(trace.expert_ids().n_total()),
                             100 * row.results[i].hit_rate()});
    }
  }
  return draw_svg(plot);
}

}  // namespace

int replay_trace(const TraceOptions& options, const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) throw UsageError("trace replay needs one trace file");
  const std::vector<std::string> policies = parse_policies(options.policies);
  std::optional<double> bandwidth;
  if (options.bandwidth) {
    bandwidth = static_cast<double>(parse_size(*options.bandwidth, "--bandwidth"));
  }
  const Trace trace = read_trace(arguments[0]);
  const std::vector<CacheSize> sizes = parse_sizes(options.sizes, trace);
  const std::vector<Row> rows = replay_all(trace, policies, sizes, parse_skip(options.skip, trace));
  if (options.plot) {
    AtomicFile file(*options.plot);
    file.write(plot_svg(trace, sizes, rows));
    file.commit();
  }
  write_stdout(options.json ? dump_json(results_json(trace, sizes, rows, bandwidth), 2) + "\n"
                            : results_text(trace, sizes, rows, bandwidth));
  return kSuccess;
}

}  // namespace moeflux::cli
