// What happens to text before it is split: Unicode normal forms, lowercase, replacements. A
// normalizer is a list of steps that tokenizer.json names; an empty list leaves text as it is.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

namespace moeflux {

// Text whose bytes may be marked as data (see marked_text.h) while normalization moves them about.
struct TrackedText {
  std::string text;
  std::string is_data;  // one 0 or 1 for each byte of text; empty when nobody asks
};

class Normalizer {
 public:
  struct Form {
    NormalForm form;
  };
  struct Lowercase {};
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct Prepend {
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct BytesToVisible {};
  using Step = std::variant<Form, Lowercase, Replace, Prepend, Strip, BytesToVisible>;

  void add(Step step) { steps_.push_back(std::move(step)); }

  // A byte that data had a part in counts as data afterwards.
  void apply(TrackedText& text, RegexScratch& scratch) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace moeflux
