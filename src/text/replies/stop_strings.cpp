#include "text/replies/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) fail(Errc::BadInput, "a stop string is empty");
    if (find_invalid_utf8(text) != std::string_view::npos) {
      fail(Errc::BadInput, "a stop string is not valid UTF-8");
    }
    Stop stop{std::move(text), {0, 0}, 0};
    for (std::size_t n = 1; n < stop.text.size(); ++n) {
      std::size_t border = stop.fallback[n];
      while (border > 0 && stop.text[border] != stop.text[n]) border = stop.fallback[border];
      stop.fallback.push_back(stop.text[border] == stop.text[n] ? border + 1 : 0);
    }
    stops_.push_back(std::move(stop));
  }
}

void StopMatcher::advance(Stop& stop, char c) {
  while (stop.matched > 0 && stop.text[stop.matched] != c)
    stop.matched = stop.fallback[stop.matched];
  if (stop.text[stop.matched] == c) ++stop.matched;
}

StopMatcher::Output StopMatcher::feed(std::string_view fragment) {
  Output output;
  if (stopped_) return output;
  std::size_t longest_partial = 0;
  for (const char c : fragment) {
    held_ += c;
    longest_partial = 0;
    std::optional<std::size_t> complete;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      advance(stops_[i], c);
      longest_partial = std::max(longest_partial, stops_[i].matched);
      const bool done = stops_[i].matched == stops_[i].text.size();
      if (done && (!complete || stops_[i].text.size() > stops_[*complete].text.size()))
        complete = i;
    }
    if (complete) {
      stopped_ = true;
      held_.resize(held_.size() - stops_[*complete].text.size());
      return {std::exchange(held_, {}), complete};
    }
  }
  if (fragment.empty()) return output;
  output.text = held_.substr(0, held_.size() - longest_partial);
  held_.erase(0, output.text.size());
  return output;
}

std::string StopMatcher::finish() {
  for (Stop& stop : stops_) stop.matched = 0;
  stopped_ = false;
  return std::exchange(held_, {});
}

}  // namespace moeflux
