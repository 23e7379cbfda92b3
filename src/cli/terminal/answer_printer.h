// Writes an answer to standard output as it comes, and sets apart what the model thinks before it
// answers: dimmed where there is colour, between <think> and </think> where there is none.
#pragma once

#include <string>
#include <string_view>

namespace moeflux::cli {

class AnswerPrinter {
 public:
  // `thinking`: the prompt ends inside of a thought, so that the text up to "</think>" belongs to
  // it.
  AnswerPrinter(bool thinking, bool color);

  void write(std::string_view text);
  void finish();  // the answer ends with exactly one newline, unless it has more itself

 private:
  enum class Part { Begin, Thought, Gap, Answer };
  bool step();  // takes something off held_; false: more text is needed
  void emit(std::string_view text);

  Part part_;
  bool opens_thought_ = false;  // its tag is still to be written
  bool dims_ = false;           // colour is dim at the moment
  bool ends_line_ = false;
  std::string held_;  // may be a part of a tag
  std::string out_;
};

}  // namespace moeflux::cli
