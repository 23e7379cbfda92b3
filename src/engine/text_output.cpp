#include "engine/text_output.h"

namespace moeflux {

StopMatcher::Output TextOutput::finish() {
  StopMatcher::Output output = stops_.feed(decoder_.finish());
  if (!output.stopped_by.has_value()) output.text += stops_.finish();
  return output;
}

}  // namespace moeflux
