#include "cli/commands/ps.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/client/http_client.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/server_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr const char* kUnknown = "-";
constexpr double kNever = 10.0 * 365 * 86400;  // a time so far away stands for none

std::uint64_t bytes_or_zero(const Json* value) {
  return static_cast<std::uint64_t>(count_or_zero(value));
}

// One GET whose answer is good to have, but not needed.
class Questions {
 public:
  Questions(const HttpClient& client, const std::function<bool()>& cancelled)
      : client_(client), cancelled_(cancelled) {}

  HttpReply get(const std::string& path) const {
    return client_.send({.path = path, .cancelled = cancelled_});
  }
  std::string text(const std::string& path) const {
    const HttpReply reply = get(path);
    return reply.ok() ? reply.body : "";
  }
  Json json(const std::string& path) const {
    try {
      return parse_json(text(path), path);
    } catch (const Error& error) {
      if (error.code() != Errc::BadInput) throw;
      return nullptr;
    }
  }

 private:
  const HttpClient& client_;
  const std::function<bool()>& cancelled_;
};

RunningModel from_list(const Json& entry) {
  RunningModel model;
  for (const char* key : {"name", "model", "id"}) {
    if (model.name.empty()) model.name = text_or_empty(member(entry, key));
  }
  // A tag that says nothing; elsewhere the model is known without it.
  if (const std::size_t tag = model.name.rfind(":latest");
      tag != std::string::npos && tag > 0 && tag + 7 == model.name.size())
    model.name.resize(tag);
  model.file_bytes = bytes_or_zero(member(entry, "size"));
  model.n_context = count_or_zero(member(entry, "context_length"));
  if (const auto expires = parse_time(text_or_empty(member(entry, "expires_at")))) {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    if (*expires - now < kNever) model.expires_seconds = std::max(*expires - now, 0.0);
  }
  return model;
}

void add_slots(const Json& slots, RunningModel& model) {
  if (!slots.is_array() || slots.empty()) return;
  model.n_sessions = std::ssize(slots);
  model.n_busy = std::count_if(slots.begin(), slots.end(), [](const Json& slot) {
    const Json* busy = member(slot, "is_processing");
    return busy != nullptr && busy->is_boolean() && busy->get<bool>();
  });
  if (model.n_context == 0) model.n_context = count_or_zero(member(slots[0], "n_ctx"));
}

void add_metrics(const std::string& text, RunningModel& model) {
  const auto value = [&](const char* name) { return metric(text, name, model.name); };
  model.memory_bytes = static_cast<std::uint64_t>(value("moeflux:memory_bytes").value_or(0));
  if (const auto waiting = value("moeflux:requests_waiting"))
    model.n_waiting = static_cast<std::int64_t>(*waiting);
  const double hits = value("moeflux:expert_hits_total").value_or(0);
  const double all = hits + value("moeflux:expert_misses_total").value_or(0);
  if (all > 0) model.hit_rate = hits / all;
}

// Everything about one model that is loaded. /props counts as using it, which would keep a model in
// memory that is about to go; so it is asked only of a server with a single one.
void add_details(const Questions& ask, RunningModel& model) {
  const std::string query = "?model=" + percent_encoded(model.name);
  add_slots(ask.json("/slots" + query), model);
  const std::string metrics = ask.text("/metrics");
  add_metrics(metrics, model);
  if (const auto ceiling = metric(metrics, "moeflux:models_memory_ceiling_bytes", model.name))
    model.ceiling_bytes = static_cast<std::uint64_t>(*ceiling);
  else if (metrics.find("moeflux:") != std::string::npos)
    model.ceiling_bytes = bytes_or_zero(member(ask.json("/props"), "moeflux", "memory", "ceiling"));
}

std::string in_time(const std::optional<double>& seconds) {
  if (!seconds) return "stays";
  if (*seconds < 90) return fmt::format("{:.0f} s", *seconds);
  if (*seconds < 90 * 60) return fmt::format("{:.0f} min", *seconds / 60);
  return fmt::format("{:.0f} h", *seconds / 3600);
}

std::vector<std::string> row(const RunningModel& model) {
  const auto size = [](std::uint64_t n) { return n > 0 ? format_bytes(n) : kUnknown; };
  const auto count = [](std::int64_t n) { return n > 0 ? fmt::format("{}", n) : kUnknown; };
  std::string memory = size(model.memory_bytes);
  if (model.memory_bytes > 0 && model.ceiling_bytes > 0)
    memory += " of " + format_bytes(model.ceiling_bytes);
  return {safe_line(model.name),
          size(model.file_bytes),
          memory,
          count(model.n_context),
          model.n_busy ? fmt::format("{} of {}", *model.n_busy, model.n_sessions) : kUnknown,
          model.n_waiting ? fmt::format("{}", *model.n_waiting) : kUnknown,
          model.hit_rate ? fmt::format("{:.1f} %", 100 * *model.hit_rate) : kUnknown,
          in_time(model.expires_seconds)};
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& each : rows)
    for (std::size_t i = 0; i < each.size(); ++i) widths[i] = std::max(widths[i], each[i].size());
  std::string text;
  for (const auto& each : rows) {
    std::string line;
    for (std::size_t i = 0; i < each.size(); ++i)
      line += fmt::format("{:<{}}", each[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// The number after a sample's name and labels.
std::optional<double> sample_value(const std::string& text) {
  double value = 0;
  const std::size_t at = text.find_first_not_of(' ');
  if (at == std::string::npos) return std::nullopt;
  const auto result = std::from_chars(text.data() + at, text.data() + text.size(), value);
  return result.ec == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

struct PsOptions {
  ServerOptions server;
  GeneralOptions general;
  bool json = false;
};

int run(const PsOptions& options) {
  const HttpClient client = make_client(options.server);
  ServerStatus status;
  {
    const InterruptGuard guard;
    status = read_status(client, [] { return interrupted(); });
  }
  write_stdout(options.json ? dump_json(status_json(status), 2) + "\n" : status_text(status));
  return kSuccess;
}

}  // namespace

std::optional<double> metric(const std::string& text, const std::string& name,
                             const std::string& model) {
  std::optional<double> sum;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    std::string rest = line.substr(name.size());
    if (!rest.empty() && rest[0] == '{') {
      const std::size_t end = rest.rfind('}');
      if (end == std::string::npos) continue;
      const std::string labels = rest.substr(0, end);
      const bool names_model = labels.find("model=\"") != std::string::npos;
      if (names_model && labels.find("model=\"" + model + "\"") == std::string::npos) continue;
      rest.erase(0, end + 1);
    }
    if (rest.empty() || rest[0] != ' ') continue;  // a longer name
    if (const auto value = sample_value(rest)) sum = sum.value_or(0) + *value;
  }
  return sum;
}

std::optional<double> parse_time(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, n = 0;
  double second = 0;
  if (text.size() > 64 || std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%lf%n", &year, &month,
                                      &day, &hour, &minute, &second, &n) != 6)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || !(second >= 0 && second < 61)) return std::nullopt;
  const std::string zone = text.substr(static_cast<std::size_t>(n));
  int zone_hour = 0, zone_minute = 0;
  char sign = '+';
  if (zone != "Z" && zone != "z" &&
      std::sscanf(zone.c_str(), "%c%2d:%2d", &sign, &zone_hour, &zone_minute) != 3)
    return std::nullopt;
  const double days = static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
  const double offset = (zone_hour * 60.0 + zone_minute) * 60 * (sign == '-' ? -1 : 1);
  return days * 86400 + hour * 3600.0 + minute * 60.0 + second - offset;
}

ServerStatus read_status(const HttpClient& client, const std::function<bool()>& cancelled) {
  const Questions ask(client, cancelled);
  ServerStatus status{.where = client.address().text(), .models = {}};
  HttpReply reply = ask.get("/api/ps");
  const char* key = "models";
  if (reply.status == 404 || reply.status == 405) {
    reply = ask.get("/v1/models");
    key = "data";
  }
  client.check(reply);
  const Json answer = parse_json(reply.body, status.where);
  if (const Json* list = member(answer, key); list != nullptr && list->is_array()) {
    for (const Json& entry : *list) {
      RunningModel model = from_list(entry);
      if (model.name.empty()) continue;
      add_details(ask, model);
      status.models.push_back(std::move(model));
    }
  }
  status.is_loading = status.models.empty() && ask.get("/health").status == 503;
  return status;
}

std::string status_text(const ServerStatus& status) {
  if (status.models.empty())
    return status.is_loading ? "the model is being loaded\n" : "no model is loaded\n";
  std::vector<std::vector<std::string>> rows{
      {"MODEL", "SIZE", "MEMORY", "CONTEXT", "BUSY", "WAITING", "EXPERT HITS", "UNLOADS IN"}};
  for (const RunningModel& model : status.models) rows.push_back(row(model));
  return table(rows);
}

Json status_json(const ServerStatus& status) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  const auto positive = [](auto value) { return value > 0 ? Json(value) : Json(); };
  Json models = Json::array();
  for (const RunningModel& model : status.models) {
    models.push_back({{"name", model.name},
                      {"size", positive(model.file_bytes)},
                      {"memory", positive(model.memory_bytes)},
                      {"memory_ceiling", positive(model.ceiling_bytes)},
                      {"context", positive(model.n_context)},
                      {"sessions", positive(model.n_sessions)},
                      {"busy", known(model.n_busy)},
                      {"waiting", known(model.n_waiting)},
                      {"expert_hit_rate", known(model.hit_rate)},
                      {"expires_in_seconds", known(model.expires_seconds)}});
  }
  return {{"server", status.where}, {"loading", status.is_loading}, {"models", std::move(models)}};
}

void add_ps_command(CommandLine& line) {
  const auto options = std::make_shared<PsOptions>();
  Command& command = line.add("ps", "Show what a running server has in memory.");
  add_server_options(command, options->server,
                     fmt::format("which server (default: {})", kDefaultServer));
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("ps")
      .example("ps --server http://192.168.1.20:9099 --api-key secret")
      .example("ps --server /run/user/1000/moeflux.sock --json");
  command.run([options](const std::vector<std::string>& /*none*/) { return run(*options); });
}

}  // namespace moeflux::cli
