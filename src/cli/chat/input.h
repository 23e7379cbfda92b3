// What the user types, from lines to messages: a message is one line, or several when they stand
// between """ and """ or end with a backslash.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moeflux::cli {

// Puts lines together.
class InputAssembler {
 public:
  static constexpr std::size_t kMaxBytes = 1 << 20;

  // A line without its newline; one from a paste may contain newlines. Returns the message when it
  // is complete. Throws Error(LimitExceeded) when it gets too long, and forgets it.
  std::optional<std::string> add(std::string_view line);
  bool is_open() const { return open_ != Open::No; }
  // Within """: it is not a command then, whatever it begins with.
  bool was_quoted() const { return quoted_; }
  // The input has ended: what is there, if anything.
  std::optional<std::string> finish();
  void clear();

 private:
  enum class Open { No, Quotes, Backslash };
  std::optional<std::string> complete();

  Open open_ = Open::No;
  bool quoted_ = false;
  std::string text_;
};

enum class InputEnd { Line, Interrupt, EndOfInput };
struct InputLine {
  InputEnd end = InputEnd::Line;
  std::string text;
};

// Where lines come from.
class LineSource {
 public:
  virtual ~LineSource() = default;
  // `initial` stands there to be changed, where lines can be edited.
  virtual InputLine read(const std::string& prompt, const std::string& initial = "") = 0;
  // Forgets what was typed before now, for a question that nobody can have answered yet.
  virtual void discard_pending() {}
  virtual void remember(const std::string& /*text*/) {}  // for the history
  virtual bool is_interactive() const = 0;               // there is somebody to ask
  virtual bool can_redraw() const { return false; }      // the terminal can replace a line
};

// Standard input as it is: no prompt, no editing.
class PlainLines : public LineSource {
 public:
  explicit PlainLines(int descriptor) : descriptor_(descriptor) {}
  InputLine read(const std::string& prompt, const std::string& initial) override;
  bool is_interactive() const override { return false; }

 private:
  int descriptor_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace moeflux::cli
