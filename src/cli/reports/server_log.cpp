#include "cli/reports/server_log.h"

#include <array>
#include <chrono>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/json.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

using Clock = std::chrono::system_clock;

constexpr std::array<std::string_view, 4> kLevels{"error", "warning", "info", "debug"};
constexpr std::array kPriorities{3, 4, 6, 7};  // of syslog
constexpr std::size_t kMaxShown = 300;         // bytes of what a client or an error says

// "2026-11-19T23:20:01.123Z"
std::string iso_time(Clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())), millis.count());
}

std::string shown(std::string_view text) {
  return safe_line(text.substr(0, kMaxShown));
}

bool is_quiet_path(const std::string& path) {
  return path == "/health" || path == "/v1/health" || path == "/metrics" ||
         path.starts_with("/page/");
}

}  // namespace

std::string_view log_level_name(LogLevel level) {
  return kLevels[static_cast<std::size_t>(level)];
}

LogLevel parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    if (kLevels[i] == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::Info;
}

LogLevel level_of(const AccessRecord& record) {
  if (is_quiet_path(record.path) && (record.status < 400 || record.status == 503))
    return LogLevel::Debug;
  if (record.status >= 500 && record.status != 503) return LogLevel::Error;
  return record.status >= 400 || record.was_left ? LogLevel::Warning : LogLevel::Info;
}

std::string access_text(const AccessRecord& record, bool with_time) {
  const AnswerNotes& notes = record.notes;
  std::string line = with_time ? iso_time(record.time) + " " : "";
  line += fmt::format("{} {} {} {:.3f} s {}", record.method.empty() ? "-" : shown(record.method),
                      record.path.empty() ? "-" : shown(record.path), record.status, record.seconds,
                      record.client);
  if (!notes.model.empty()) line += fmt::format(" model={}", shown(notes.model));
  if (notes.prompt_tokens) line += fmt::format(" prompt={}", *notes.prompt_tokens);
  if (notes.cached_tokens) line += fmt::format(" cached={}", *notes.cached_tokens);
  if (notes.completion_tokens) line += fmt::format(" completion={}", *notes.completion_tokens);
  if (record.was_left) line += " (the client left)";
  if (!notes.error.empty()) line += fmt::format(": {}", shown(notes.error));
  return line;
}

std::string access_json(const AccessRecord& record) {
  const AnswerNotes& notes = record.notes;
  Json line = {{"time", iso_time(record.time)},
               {"level", log_level_name(level_of(record))},
               {"event", "request"},
               {"client", record.client},
               {"method", shown(record.method)},
               {"path", shown(record.path)},
               {"status", record.status},
               {"seconds", record.seconds},
               {"bytes_in", record.bytes_in},
               {"bytes_out", record.bytes_out}};
  if (record.was_left) line["client_left"] = true;
  if (!notes.model.empty()) line["model"] = shown(notes.model);
  if (notes.prompt_tokens) line["prompt_tokens"] = *notes.prompt_tokens;
  if (notes.cached_tokens) line["cached_tokens"] = *notes.cached_tokens;
  if (notes.completion_tokens) line["completion_tokens"] = *notes.completion_tokens;
  if (!notes.error.empty()) line["error"] = shown(notes.error);
  return dump_json(line);
}

void ServerLog::write(LogLevel level, std::string line) const {
  if (in_journal_) {
    line.insert(0, fmt::format("<{}>", kPriorities[static_cast<std::size_t>(level)]));
  }
  write_stderr(line + "\n");
}

void ServerLog::note(LogLevel level, std::string_view text) const {
  if (!shows(level)) return;
  if (format_ == Format::Json) {
    return write(level, dump_json({{"time", iso_time(Clock::now())},
                                   {"level", log_level_name(level)},
                                   {"event", "note"},
                                   {"message", text}}));
  }
  write(level, in_journal_ ? std::string(text) : fmt::format("moeflux: {}", text));
}

void ServerLog::request(const AccessRecord& record) const {
  const LogLevel level = level_of(record);
  if (!shows(level)) return;
  write(level, format_ == Format::Json ? access_json(record)
                                       : access_text(record, /*with_time=*/!in_journal_));
}

}  // namespace moeflux::cli
