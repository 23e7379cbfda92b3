#include "server/service/answer_parts.h"

#include <random>
#include <string_view>

namespace moeflux {

std::string random_id() {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random{std::random_device()()};
  std::uniform_int_distribution<std::size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

std::optional<HttpError> answer_error(const GenerationEnded& ended) {
  if (ended.reason == FinishReason::Error) {
    const HttpError error = to_http_error(*ended.error);
    // What goes wrong during an answer is not the fault of the request.
    return HttpError(error.status() < 500 ? 500 : error.status(), "server_error", error.what());
  }
  if (ended.reason == FinishReason::Cancelled)
    return HttpError(503, "unavailable_error", "the answer was given up: the server is stopping");
  return std::nullopt;
}

}  // namespace moeflux
