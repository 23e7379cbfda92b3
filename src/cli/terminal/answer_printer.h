// Writes an answer to standard output as it comes. With colour, what the model thinks before it
// answers is dimmed.
#pragma once

#include <string>
#include <string_view>

namespace moeflux::cli {

class AnswerPrinter {
 public:
  // `thinking`: the prompt ends inside of a thought, so that the text up to "</think>" belongs to
  // it.
  AnswerPrinter(bool thinking, bool color) : dim_(thinking && color) {}

  void write(std::string_view text);
  void finish();  // the answer ends with exactly one newline, unless it has more itself

 private:
  bool dim_;  // still inside of the thought
  bool dim_started_ = false;
  std::string recent_;  // the end of what was written: "</think>" may come in pieces
  bool ends_line_ = false;
};

}  // namespace moeflux::cli
