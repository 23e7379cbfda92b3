// A configuration file as text: the part of TOML that options need. `key = value` lines, [sections]
// of one level, # comments; values are "strings" (with TOML's escapes), 'literal strings', numbers,
// true, false, and [lists] of these, which may go over several lines. What TOML has beyond that
// (tables in tables, dotted keys, dates, strings over several lines) is refused, never guessed at.
//
// CLI11 has a reader of its own; it keeps no line numbers and takes a malformed line for a value,
// and both are what a user with a mistake in the file needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::cli {

inline constexpr std::uint64_t kMaxConfigBytes = 1u << 20;

struct ConfigEntry {
  std::string section;  // "" before the first [section]
  std::string key;
  std::vector<std::string> values;  // as text: 8080 is "8080", true is "true"
  bool is_list = false;
  int line = 0;
};

struct ConfigSection {
  std::string name;
  int line = 0;
};

struct ConfigText {
  std::vector<ConfigSection> sections;  // in the order of the file, also empty ones
  std::vector<ConfigEntry> entries;
};

// Throws UsageError that begins with "path:line: ". A key or a section that comes twice is one.
ConfigText parse_config(std::string_view text, const std::string& path);

// `text` as a string that parse_config reads back.
std::string toml_string(std::string_view text);

}  // namespace moeflux::cli
