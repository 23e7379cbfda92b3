#include "cli/terminal/answer_printer.h"

#include <algorithm>
#include <utility>

#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kThought = "<think>", kEndThought = "</think>";
constexpr std::string_view kDim = "\033[2m", kPlain = "\033[0m";
constexpr std::string_view kBlank = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

// How many bytes at the end of `text` may be the beginning of `tag`.
std::size_t begun(std::string_view text, std::string_view tag) {
  std::size_t n = std::min(text.size(), tag.size() - 1);
  while (n > 0 && !text.ends_with(tag.substr(0, n))) --n;
  return n;
}

}  // namespace

// Without colour nothing has to be found in the text: it passes through.
AnswerPrinter::AnswerPrinter(bool thinking, bool color)
    : part_(!color     ? Part::Answer
            : thinking ? Part::Thought
                       : Part::Begin),
      opens_thought_(thinking && !color) {}

void AnswerPrinter::emit(std::string_view text) {
  if (text.empty()) return;
  out_ += text;
  ends_line_ = text.back() == '\n';
}

bool AnswerPrinter::step() {
  if (held_.empty()) return false;
  switch (part_) {
    case Part::Begin: {
      const std::string_view text = without_blanks(held_);
      if (text.size() < kThought.size() && kThought.starts_with(text)) return false;
      const bool thinks = text.starts_with(kThought);
      part_ = thinks ? Part::Thought : Part::Answer;
      if (thinks) held_ = std::string(without_blanks(text.substr(kThought.size())));
      return true;
    }
    case Part::Thought: {
      if (!std::exchange(dims_, true)) out_ += kDim;
      const std::size_t end = held_.find(kEndThought);
      const std::size_t n =
          end == std::string::npos ? held_.size() - begun(held_, kEndThought) : end;
      emit(std::string_view(held_).substr(0, n));
      held_.erase(0, n);
      if (end == std::string::npos) return false;
      held_.erase(0, kEndThought.size());
      out_ += kPlain;
      dims_ = false;
      part_ = Part::Gap;
      return true;
    }
    case Part::Gap: {
      held_ = std::string(without_blanks(held_));
      if (held_.empty()) return false;
      emit(ends_line_ ? "\n" : "\n\n");
      part_ = Part::Answer;
      return true;
    }
    case Part::Answer:
      emit(std::exchange(held_, ""));
      return false;
  }
  return false;
}

void AnswerPrinter::write(std::string_view text) {
  if (text.empty()) return;
  if (std::exchange(opens_thought_, false)) out_ += std::string(kThought) + "\n";
  held_ += text;
  while (step()) {
  }
  if (!out_.empty()) write_stdout(std::exchange(out_, ""));
}

void AnswerPrinter::finish() {
  if (part_ != Part::Gap) emit(std::exchange(held_, ""));
  if (dims_) out_ += kPlain;
  if (!ends_line_) out_ += '\n';
  write_stdout(std::exchange(out_, ""));
}

}  // namespace moeflux::cli
