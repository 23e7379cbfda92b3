// Finds stop strings in text that arrives in fragments, and holds back what may become one, so that
// no part of a stop string is ever shown. The result does not depend on where fragments are cut:
// the stop string that is complete first wins, and of those complete at the same byte the longest.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

class StopMatcher {
 public:
  // Throws BadInput for a stop string that is empty or not UTF-8. None at all is fine.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;                       // safe to show
    std::optional<std::size_t> stopped_by;  // index of the stop string that ended the text
  };

  // After a stop, everything further is swallowed.
  Output feed(std::string_view fragment);

  // The end of the text: what was held back and became no stop string.
  std::string finish();

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // [n]: length of the longest border of text[0..n)
    std::size_t matched = 0;            // bytes of text that the input ends with
  };
  static void advance(Stop& stop, char c);

  std::vector<Stop> stops_;
  std::string held_;  // ends with every partial match
  bool stopped_ = false;
};

}  // namespace moeflux
