// Conversations on disk: one file each, one message a line, as JSON. A file is replaced as a whole
// after every turn, so that it is readable whenever the program stops. Only its owner can read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace moeflux::cli {

// Messages in OpenAI's form, with "time" and "model"; "stopped" marks an answer that the user
// ended.
struct ChatSession {
  std::string name;
  Json messages = Json::array();

  void add(Json message, const std::string& model);  // says when and by which model
  // The system message: the first one, if it is that. An empty text removes it.
  std::string system() const;
  void set_system(const std::string& text, const std::string& model);
  // Where the last question is, or nothing.
  std::optional<std::size_t> last_question() const;
  void cut(std::size_t n_messages);  // forgets all after these
};

// What a message of a session says; "" where its content is missing or no plain text.
std::string text_of(const Json& message);

class ChatStore {
 public:
  // Creates nothing yet. Empty: nothing is kept.
  explicit ChatStore(std::string directory) : directory_(std::move(directory)) {}

  bool is_on() const { return !directory_.empty(); }
  // One that nobody has said anything in gets no file.
  void save(const ChatSession& session) const;
  ChatSession load(const std::string& name) const;
  bool has(const std::string& name) const;

  struct Entry {
    std::string name;
    std::string changed;  // local time
    std::string title;    // how the first question begins
    double age = 0;       // seconds
  };
  std::vector<Entry> list() const;            // the latest first
  std::optional<std::string> latest() const;  // the name
  // Those in which every word stands, in the name or in what was said; case of a to z is the same.
  std::vector<Entry> find(const std::string& words) const;
  // The one that is called so, or the only one that find() finds. Throws Error that lists them when
  // there are several.
  std::string resolve(const std::string& text) const;

  std::string new_name() const;  // by the time, not used yet
  std::string path(const std::string& name) const { return directory_ + "/" + name + ".jsonl"; }

 private:
  std::string directory_;
};

// A line for each.
std::string session_list(const std::vector<ChatStore::Entry>& entries, int width = 0);

// Throws Error(BadInput): names are letters, digits, '.', '_' and '-', and begin with none of the
// latter, so that each is a file in the directory and nothing else.
void check_session_name(const std::string& name);

}  // namespace moeflux::cli
