// Takes a stream of server-sent events apart while it arrives, cut anywhere.
//
// Lines end with LF, CRLF or CR; comments and fields without a meaning here are skipped; several
// data lines of an event are joined by newlines. An event is passed on when the blank line after it
// has come. One that grows beyond kMaxEventBytes throws Error(LimitExceeded).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace moeflux::cli {

struct SseEvent {
  std::string name;  // of "event:"; mostly empty
  std::string data;
};

class SseReader {
 public:
  static constexpr std::size_t kMaxEventBytes = 16 << 20;
  using Sink = std::function<void(const SseEvent&)>;

  explicit SseReader(Sink sink) : sink_(std::move(sink)) {}

  void feed(std::string_view bytes);
  // The stream has ended: an event whose lines are whole counts, though no blank line follows.
  void finish();

 private:
  void end_line();
  void end_event();

  Sink sink_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_cr_ = false;     // a LF now belongs to the CR before it
  bool at_beginning_ = true;  // where a byte order mark may stand
};

}  // namespace moeflux::cli
