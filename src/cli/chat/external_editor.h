// The user's own editor, for a message of a chat.
#pragma once

#include <string>

namespace moeflux::cli {

// $VISUAL, else $EDITOR, else vi.
std::string editor_command();

// Runs the editor on a file with the text, which only its owner can read and which is gone
// afterwards, and returns what is in it then, without newlines at its end. The editor has the
// terminal. Throws Error where it cannot be run or ends with an error.
std::string edit_text(const std::string& text, const std::string& command);

}  // namespace moeflux::cli
