#include "cli/chat/session.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/terminal/terminal.h"
#include "text/chat/chat.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxName = 64;
constexpr std::uint64_t kMaxSessionFile = 64u << 20;
constexpr std::string_view kSuffix = ".jsonl";
constexpr std::size_t kMaxTitleLine = 1 << 16;  // a longer message gives no title

std::string format_time(std::time_t time, const char* format, bool local) {
  std::tm parts{};
  local ? ::localtime_r(&time, &parts) : ::gmtime_r(&time, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-").find(c) != std::string_view::npos;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// The first line of the first question, from the beginning of the file.
std::string read_title(const std::string& path) {
  std::ifstream file(path);
  std::string line(kMaxTitleLine, '\0');
  for (int i = 0; i < 2 && file.getline(line.data(), static_cast<std::streamsize>(line.size()));
       ++i) {
    try {
      const Json message = parse_json(line.c_str(), path);
      const JsonFields fields(message, path);
      if (fields.string_or("role", "") != "user") continue;
      const std::string text = fields.string_or("content", "");
      return text.substr(0, text.find('\n'));
    } catch (const Error&) {
      return "";
    }
  }
  return "";
}

Json parse_message(std::string_view line, const std::string& origin) {
  Json message = parse_json(line, origin);
  try {
    validate_messages(Json::array({message}));
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", origin, error.what());
  }
  const std::string role = JsonFields(message, origin).string("role");
  for (const char* known : {"system", "user", "assistant", "tool"})
    if (role == known) return message;
  fail(Errc::BadInput, "{}: a message has the role \"{}\"", origin, role);
}

}  // namespace

std::string text_of(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : "";
}

void ChatSession::add(Json message, const std::string& model) {
  message["time"] = format_time(std::time(nullptr), "%Y-%m-%dT%H:%M:%SZ", /*local=*/false);
  message["model"] = model;
  messages.push_back(std::move(message));
}

std::string ChatSession::system() const {
  if (messages.empty() || messages[0]["role"] != "system") return "";
  return text_of(messages[0]);
}

void ChatSession::set_system(const std::string& text, const std::string& model) {
  if (!messages.empty() && messages[0]["role"] == "system") messages.erase(0);
  if (text.empty()) return;
  ChatSession alone;
  alone.add({{"role", "system"}, {"content", text}}, model);
  messages.insert(messages.begin(), alone.messages[0]);
}

std::optional<std::size_t> ChatSession::last_question() const {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (messages[i]["role"] == "user") return i;
  return std::nullopt;
}

void ChatSession::cut(std::size_t n_messages) {
  while (messages.size() > n_messages) messages.erase(messages.size() - 1);
}

void check_session_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMaxName &&
                    std::all_of(name.begin(), name.end(), is_name_character) && name[0] != '.' &&
                    name[0] != '-' && name[0] != '_';
  if (good) return;
  fail(Errc::BadInput,
       "\"{}\" is no name for a session: use 1 to {} letters, digits and . _ -, a letter or digit "
       "first",
       replace_invalid_utf8(name.substr(0, kMaxName)), kMaxName);
}

void ChatStore::save(const ChatSession& session) const {
  if (!is_on() || (!session.last_question() && !has(session.name))) return;
  check_session_name(session.name);
  make_private_directory(directory_);
  AtomicFile file(path(session.name), FileAccess::Private);
  for (const Json& message : session.messages) file.write(dump_json(message) + "\n");
  file.commit();
}

ChatSession ChatStore::load(const std::string& name) const {
  check_session_name(name);
  if (!has(name)) fail(Errc::NotFound, "there is no session \"{}\"", name);
  ChatSession session;
  session.name = name;
  const std::string text = read_text_file(path(name), kMaxSessionFile);
  int line_number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    session.messages.push_back(
        parse_message(line, fmt::format("{}, line {}", path(name), line_number)));
  }
  return session;
}

bool ChatStore::has(const std::string& name) const {
  return is_on() && file_exists(path(name));
}

std::vector<ChatStore::Entry> ChatStore::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  if (!is_on()) return entries;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_, error)) {
    const std::string name = file.path().stem().string();
    struct stat status {};
    if (file.path().extension() != kSuffix || ::stat(file.path().c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    const double changed = static_cast<double>(status.st_mtim.tv_sec) +
                           1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
    entries.push_back({name, format_time(status.st_mtim.tv_sec, "%Y-%m-%d %H:%M", true),
                       read_title(file.path().string()),
                       static_cast<double>(std::time(nullptr)) - changed});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.age < b.age; });
  return entries;
}

std::optional<std::string> ChatStore::latest() const {
  const std::vector<Entry> entries = list();
  return entries.empty() ? std::nullopt : std::optional(entries[0].name);
}

std::vector<ChatStore::Entry> ChatStore::find(const std::string& words) const {
  std::vector<std::string> wanted = split(lower(words), ' ');
  std::erase(wanted, "");
  std::vector<Entry> found;
  for (const Entry& entry : list()) {
    std::string said = lower(entry.name);
    try {
      const ChatSession session = load(entry.name);
      for (const Json& message : session.messages) {
        said += '\n';
        said += lower(text_of(message));
      }
    } catch (const Error&) {
      continue;  // one that cannot be read can only be called by its name
    }
    const bool has_all = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
      return said.find(word) != std::string::npos;
    });
    if (has_all) found.push_back(entry);
  }
  return found;
}

std::string ChatStore::resolve(const std::string& text) const {
  constexpr std::size_t kMaxListed = 10;
  bool is_name = true;
  try {
    check_session_name(text);
  } catch (const Error&) {
    is_name = false;
  }
  if (is_name && has(text)) return text;
  std::vector<Entry> found = find(text);
  if (found.size() == 1) return found[0].name;
  if (found.empty()) {
    fail(Errc::NotFound, "there is no session \"{}\", and none in which that was said",
         safe_line(text));
  }
  const std::size_t n = found.size();
  found.resize(std::min(n, kMaxListed));
  fail(Errc::BadInput, "\"{}\" was said in {} conversations; name one, or say more:\n{}{}",
       safe_line(text), n, session_list(found), n > kMaxListed ? "...\n" : "");
}

std::string session_list(const std::vector<ChatStore::Entry>& entries, int width) {
  constexpr int kNameColumns = 28, kTimeColumns = 18, kTitleColumns = 60;
  const int left = width > 0 ? width - kNameColumns - kTimeColumns : kTitleColumns;
  std::string text;
  for (const ChatStore::Entry& entry : entries) {
    text += fmt::format("{}{:<18}{}\n", padded(safe_line(entry.name) + " ", kNameColumns),
                        entry.changed, fit_columns(safe_line(entry.title), std::max(left, 10)));
  }
  return text;
}

std::string ChatStore::new_name() const {
  const std::string base = format_time(std::time(nullptr), "chat-%Y%m%d-%H%M%S", /*local=*/true);
  std::string name = base;
  for (int i = 2; has(name); ++i) name = fmt::format("{}-{}", base, i);
  return name;
}

}  // namespace moeflux::cli
