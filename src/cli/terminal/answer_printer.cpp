#include "cli/terminal/answer_printer.h"

#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kEndThought = "</think>";
constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kPlain = "\033[0m";

}  // namespace

void AnswerPrinter::write(std::string_view text) {
  if (text.empty()) return;
  ends_line_ = text.back() == '\n';
  if (!dim_) {
    write_stdout(text);
    return;
  }
  std::string out;
  if (!dim_started_) out += kDim;
  dim_started_ = true;
  const std::size_t n_before = recent_.size();
  recent_ += text;
  const std::size_t end = recent_.find(kEndThought);
  if (end == std::string::npos) {
    out += text;
    if (recent_.size() > kEndThought.size()) recent_.erase(0, recent_.size() - kEndThought.size());
  } else {
    const std::size_t n_thought = end + kEndThought.size() - n_before;
    out += text.substr(0, n_thought);
    out += kPlain;
    out += text.substr(n_thought);
    dim_ = false;
  }
  write_stdout(out);
}

void AnswerPrinter::finish() {
  std::string out;
  if (dim_ && dim_started_) out += kPlain;
  if (!ends_line_) out += '\n';
  write_stdout(out);
}

}  // namespace moeflux::cli
