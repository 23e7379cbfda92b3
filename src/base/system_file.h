// The small text files in which the kernel describes the machine: /proc, /sys, control groups.
// They say 0 as their size, may vanish between two reads, and differ from one kernel to the next,
// so nothing here throws: what cannot be read or understood is absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// The first max_bytes of the file; nothing when it cannot be read.
std::optional<std::string> read_system_file(const std::string& path,
                                            std::size_t max_bytes = std::size_t{1} << 20);

// Of a file that holds one number. "max" and everything else is nothing.
std::optional<std::uint64_t> read_system_number(const std::string& path);

// Of a file that holds one line; empty when there is none.
std::string read_system_line(const std::string& path);

// `root` + `path`, where path begins with a slash: "/" and "/proc" give "/proc".
std::string under_root(const std::string& root, std::string_view path);

std::string_view trimmed(std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text);
std::vector<std::string_view> split_words(std::string_view text);

// A decimal number with nothing around it but white space.
std::optional<std::uint64_t> parse_number(std::string_view text);

// The number after `key` in lines of "key value" or "key: value kB" (which counts in bytes here).
std::optional<std::uint64_t> find_number(std::string_view text, std::string_view key);

// Where the control group of this process is found. Groups are nested, and a limit of any of them
// counts, so all of them are named: from our own up to the top of what is mounted here. Inside a
// container that top is usually the container's own group.
struct Cgroup {
  int version = 0;                       // 1 or 2; 0: there is none
  std::vector<std::string> directories;  // our own group first, then the groups around it
};

// Of the controller ("memory", "cpu"): in the unified hierarchy (version 2) unless a hierarchy of
// its own has it (version 1). `root` stands for "/"; nothing is thrown, whatever the files hold.
Cgroup find_cgroup(std::string_view controller, const std::string& root = "/");

}  // namespace moeflux
