// Text the user hands in: as arguments, from a file, or on standard input. Always checked to be
// UTF-8, because text that is silently repaired is not what the user wrote.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace moeflux::cli {

// Throws Error(BadInput) with the offset of the first bad byte.
void check_utf8(const std::string& text, const std::string& origin);

// A file, byte for byte, or standard input for "-". There, one newline at the very end is dropped:
// it is the end of the line that `echo` writes.
std::string read_text(const std::string& path);

// A JSON file, or standard input for "-".
Json read_json(const std::string& path);

// Arguments joined with spaces; else the file; else standard input if something is piped into it;
// else nothing. Arguments and a file together are a UsageError.
std::optional<std::string> find_text(const std::vector<std::string>& arguments,
                                     const std::optional<std::string>& file);

// What another program or a file sends on standard input beside a prompt; nothing where that is a
// terminal, /dev/null or empty. Calls `waiting` once where nothing has come for a while.
std::optional<std::string> piped_text(const std::function<void()>& waiting);

}  // namespace moeflux::cli
