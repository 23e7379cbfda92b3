// What a server says on standard error: remarks, and one line for each request.
#pragma once

#include <string>
#include <string_view>

#include "server/http/access_log.h"

namespace moeflux::cli {

enum class LogLevel { Error, Warning, Info, Debug };

class ServerLog {
 public:
  enum class Format { Text, Json };
  // `in_journal`: the reader adds the time itself and knows levels by a number in front.
  ServerLog(Format format, LogLevel level, bool in_journal)
      : format_(format), level_(level), in_journal_(in_journal) {}

  Format format() const { return format_; }
  bool shows(LogLevel level) const { return level <= level_; }

  void note(LogLevel level, std::string_view text) const;
  void request(const AccessRecord& record) const;

 private:
  void write(LogLevel level, std::string line) const;

  Format format_;
  LogLevel level_;
  bool in_journal_;
};

// "error", "warning", "info", "debug"
std::string_view log_level_name(LogLevel level);
// One of these names.
LogLevel parse_log_level(std::string_view name);

// How much a request is worth saying: questions that programs ask all the time are Debug.
LogLevel level_of(const AccessRecord& record);

// One line each, without a newline. What a client wrote is made harmless.
std::string access_text(const AccessRecord& record, bool with_time);
std::string access_json(const AccessRecord& record);

}  // namespace moeflux::cli
