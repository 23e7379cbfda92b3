// A configuration file as options need it: `key = value` lines at the top and in [sections] of one
// level. The only user of toml++ is config_file.cpp.
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
  std::vector<ConfigEntry> entries;     // likewise
};

// Throws UsageError that begins with "path:line: " for what is no TOML, and for what no option can
// be set to: dates, infinities, tables in sections and in lists, lists in lists.
ConfigText parse_config(std::string_view text, const std::string& path);

// `text` as a string that parse_config reads back.
std::string toml_string(std::string_view text);

}  // namespace moeflux::cli
