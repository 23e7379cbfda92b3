// Cuts normalized text into the pieces that byte-pair merges never cross. A list of steps, each
// applied to the pieces the one before left; the steps are those tokenizer.json names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"

namespace moeflux {

// What becomes of the text a pattern matches, here for '-' in "a--b":
enum class SplitBehavior {
  Removed,             // a | b
  Isolated,            // a | - | - | b
  MergedWithPrevious,  // a- | - | b
  MergedWithNext,      // a | - | -b
  Contiguous,          // a | -- | b
};

// Pieces of one text, in order. They need not cover it.
struct Pieces {
  std::string text;
  std::vector<ByteRange> ranges;

  std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

class Pretokenizer {
 public:
  struct Split {
    Regex pattern;
    SplitBehavior behavior;
    bool invert;  // the pattern matches what is between the delimiters
  };
  struct CharacterSplit {
    bool (*matches)(char32_t);
    SplitBehavior behavior;
  };
  struct PrefixSpace {};  // every piece begins with a space
  struct BytesToVisible {};
  struct Metaspace {
    enum class Prepend { Never, First, Always };
    std::string replacement;  // stands for a space
    Prepend prepend;
    bool split;
  };
  using Step = std::variant<Split, CharacterSplit, PrefixSpace, BytesToVisible, Metaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }

  // Removes a last step that writes bytes as visible characters, and says whether there was one:
  // the model can then read bytes directly.
  bool drop_final_bytes_to_visible();

  // `at_text_start`: `text` begins where the whole text began.
  Pieces split(std::string text, bool at_text_start, RegexScratch& scratch) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace moeflux
