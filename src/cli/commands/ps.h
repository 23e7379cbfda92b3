// moeflux ps: what a running server has in memory, read over HTTP, shown as a table or as JSON.
// Made for our server; another one that answers /api/ps or /v1/models is shown as far as it tells.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/client/http_client.h"

namespace moeflux::cli {

struct RunningModel {
  std::string name;
  std::uint64_t file_bytes = 0;  // these are 0 where they are not known
  std::uint64_t memory_bytes = 0, ceiling_bytes = 0;
  std::int64_t n_context = 0;
  std::int64_t n_sessions = 0;
  std::optional<std::int64_t> n_busy, n_waiting;
  std::optional<double> hit_rate;         // of experts, since the model was loaded
  std::optional<double> expires_seconds;  // from now; nothing: it stays, or not known
};

struct ServerStatus {
  std::string where;
  bool is_loading = false;  // no model is there yet
  std::vector<RunningModel> models;
};

// Throws Error when the server cannot be reached or refuses.
ServerStatus read_status(const HttpClient& client, const std::function<bool()>& cancelled);

std::string status_text(const ServerStatus& status);
Json status_json(const ServerStatus& status);

// The value of a sample in Prometheus text, of `model` where samples have a label of that name;
// several are added up. Nothing: there is none.
std::optional<double> metric(const std::string& text, const std::string& name,
                             const std::string& model);

// Seconds since 1970 of "2026-01-31T12:00:00.5+01:00"; nothing for what is no such time.
std::optional<double> parse_time(const std::string& text);

}  // namespace moeflux::cli
