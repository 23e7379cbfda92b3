// Conversations on disk, and what /set changes.
#include "cli/chat/session.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/chat/settings.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::cli {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;

ChatSession conversation(const std::string& name, const std::string& question) {
  ChatSession session;
  session.name = name;
  session.add({{"role", "user"}, {"content", question}}, "models/x");
  session.add({{"role", "assistant"}, {"content", "Yes.\n\"No\""}, {"stopped", true}}, "models/x");
  return session;
}

TEST(ChatSessionTest, IsWrittenAndReadBack) {
  const TempDir directory;
  const ChatStore store(directory.file("a/b/sessions"));
  const ChatSession session = conversation("first", "Is it?");
  store.save(session);
  const ChatSession again = store.load("first");
  EXPECT_EQ(again.name, "first");
  EXPECT_EQ(again.messages, session.messages);
  EXPECT_EQ(again.messages[0]["model"], "models/x");
  EXPECT_EQ(again.messages[0]["time"].get<std::string>().size(), 20u);
  const std::string text = read_text_file(store.path("first"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(fs::status(store.path("first")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(directory.file("a/b/sessions")).permissions(), fs::perms::owner_all);
  EXPECT_FALSE(fs::exists(store.path("first") + ".part"));
}

TEST(ChatSessionTest, OneThatNobodyHasSpokenInIsNotWritten) {
  const TempDir directory;
  const ChatStore store(directory.path());
  ChatSession session;
  session.name = "empty";
  session.set_system("Be brief.", "m");
  store.save(session);
  EXPECT_TRUE(store.list().empty());
  EXPECT_EQ(store.latest(), std::nullopt);
}

TEST(ChatSessionTest, AreFoundByWhatWasSaid) {
  const TempDir directory;
  const ChatStore store(directory.path());
  store.save(conversation("first", "Where do Frogs live?"));
  store.save(conversation("second", "Where do toads live?"));
  store.save(conversation("frog", "Something else"));
  EXPECT_EQ(store.resolve("second"), "second");
  EXPECT_EQ(store.resolve("frog"), "frog");  // its name, though another one speaks of frogs
  EXPECT_EQ(store.resolve("frogs live"), "first");
  EXPECT_EQ(store.resolve("LIVE toads"), "second");
  EXPECT_EQ(store.find("live").size(), 2u);
  EXPECT_EQ(store.find("no").size(), 3u);  // of the answer
  expect_error(Errc::BadInput, {"\"where live\"", "2 conversations", "first", "second", "toads"},
               [&] { store.resolve("where live"); });
  expect_error(Errc::NotFound, {"\"newt\""}, [&] { store.resolve("newt"); });
  const ChatStore::Entry entry{.name = "n",
                               .changed = "2026-01-01 10:00",
                               .title = "\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e",
                               .age = 0};
  EXPECT_EQ(
      session_list({entry}, 57),
      "n" + std::string(27, ' ') + "2026-01-01 10:00  \u65e5\u672c\u8a9e\u65e5\u672c\u2026\n");
}

TEST(ChatSessionTest, NamesAreOnlyNames) {
  const TempDir directory;
  const ChatStore store(directory.file("sessions"));
  for (const std::string name :
       {"", "..", "../x", "a/b", ".hidden", "-rf", "a b", "a\nb", "x\033[m", "caf\xC3\xA9"}) {
    expect_error(Errc::BadInput, {"is no name for a session"}, [&] { check_session_name(name); });
    expect_error(Errc::BadInput, {"is no name for a session"}, [&] { store.load(name); });
    expect_error(Errc::BadInput, {"is no name for a session"},
                 [&] { store.save(conversation(name, "x")); });
  }
  expect_error(Errc::BadInput, {"is no name"}, [] { check_session_name(std::string(65, 'x')); });
  check_session_name("chat-20250102-030405");
  check_session_name("My.notes_2");
}

TEST(ChatSessionTest, ListsTheLatestFirst) {
  const TempDir directory;
  const ChatStore store(directory.path());
  store.save(conversation("old", "An old question\nwith more"));
  store.save(conversation("new", "A new question"));
  fs::last_write_time(store.path("old"), fs::file_time_type::clock::now() - std::chrono::hours(1));
  directory.write("damaged.jsonl", "not json\n");
  fs::last_write_time(store.path("damaged"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  directory.write("other.txt", "x");
  const auto list = store.list();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].name, "new");
  EXPECT_EQ(list[0].title, "A new question");
  EXPECT_EQ(list[1].name, "old");
  EXPECT_EQ(list[1].title, "An old question");
  EXPECT_EQ(list[2].title, "");
  EXPECT_EQ(store.latest(), "new");
}

TEST(ChatSessionTest, DamagedFilesAreRefusedByLine) {
  const TempDir directory;
  const ChatStore store(directory.path());
  directory.write("a.jsonl", "{\"role\":\"user\",\"content\":\"x\"}\n{\"role\":");
  expect_error(Errc::BadInput, {"a.jsonl, line 2"}, [&] { store.load("a"); });
  directory.write("b.jsonl", "{\"role\":\"root\",\"content\":\"x\"}\n");
  expect_error(Errc::BadInput, {"\"root\""}, [&] { store.load("b"); });
  directory.write("c.jsonl", "[1]\n");
  expect_error(Errc::BadInput, {"c.jsonl, line 1: ", "must be an object"},
               [&] { store.load("c"); });
  expect_error(Errc::NotFound, {"no session \"d\""}, [&] { store.load("d"); });
}

TEST(ChatSessionTest, SystemMessageIsTheFirst) {
  ChatSession session = conversation("x", "?");
  EXPECT_EQ(session.system(), "");
  session.set_system("Be brief.", "m");
  session.set_system("Be long.", "m");
  EXPECT_EQ(session.system(), "Be long.");
  EXPECT_EQ(session.messages.size(), 3u);
  EXPECT_EQ(session.last_question(), 1u);
  session.cut(1);
  EXPECT_EQ(session.last_question(), std::nullopt);
  session.set_system("", "m");
  EXPECT_TRUE(session.messages.empty());
}

TEST(ChatSessionTest, MessagesNeedNoContent) {
  const TempDir directory;
  const ChatStore store(directory.path());
  for (const std::string content :
       {"", ", \"content\": null", ", \"content\": [{\"type\": \"text\", \"text\": \"x\"}]"}) {
    directory.write(
        "a.jsonl",
        fmt::format("{{\"role\": \"system\"{0}}}\n{{\"role\": \"user\"{0}}}\n", content));
    ChatSession session = store.load("a");
    EXPECT_EQ(session.system(), "") << content;
    EXPECT_EQ(text_of(session.messages[1]), "") << content;
    EXPECT_EQ(session.last_question(), 1u) << content;
    EXPECT_EQ(store.list()[0].title, "") << content;
    session.set_system("Be brief.", "m");
    EXPECT_EQ(session.system(), "Be brief.") << content;
    EXPECT_EQ(session.messages.size(), 2u) << content;
  }
}

TEST(ChatSessionTest, WithoutADirectoryNothingIsKept) {
  const ChatStore store("");
  store.save(conversation("x", "?"));
  EXPECT_TRUE(store.list().empty());
  EXPECT_FALSE(store.has("x"));
  EXPECT_EQ(store.new_name().substr(0, 5), "chat-");
}

TEST(ChatSettingsTest, ChangesWhatIsNamed) {
  ChatSettings settings;
  change_setting(settings, "temperature", "0.5");
  EXPECT_EQ(settings.sampling.temperature, 0.5);
  change_setting(settings, "temp", "default");
  EXPECT_EQ(settings.sampling.temperature, std::nullopt);
  change_setting(settings, "top-k", "20");
  EXPECT_EQ(settings.sampling.top_k, 20);
  change_setting(settings, "seed", "7");
  EXPECT_EQ(settings.sampling.seed, 7);
  change_setting(settings, "max_tokens", "12");
  EXPECT_EQ(settings.max_tokens, 12);
  change_setting(settings, "think", "show");
  EXPECT_EQ(settings.think, ThinkView::Show);
  change_setting(settings, "thinking", "off");
  EXPECT_EQ(settings.thinking, false);
  change_setting(settings, "markdown", "off");
  EXPECT_FALSE(settings.markdown);
  change_setting(settings, "tool_timeout", "2.5");
  EXPECT_EQ(settings.tool_timeout, 2.5);
}

TEST(ChatSettingsTest, RefusesWhatDoesNotFit) {
  ChatSettings settings;
  const auto refuse = [&](const char* key, const char* value, const char* why) {
    expect_error(Errc::BadInput, {why}, [&] { change_setting(settings, key, value); });
  };
  refuse("temperature", "hot", "temperature: \"hot\" is not a number");
  refuse("temperature", "-1", "--temp");
  refuse("temperature", "", "needs a value");
  refuse("max_tokens", "-1", "0 (no limit) or more");
  refuse("think", "loud", "show, fold, hide");
  refuse("markdown", "maybe", "neither on nor off");
  refuse("tool_timeout", "0", "more than 0 seconds");
  refuse("temperatur", "1", "did you mean temperature?");
  EXPECT_EQ(settings.sampling.temperature, std::nullopt);
}

TEST(ChatSettingsTest, TellsWhatApplies) {
  ChatSettings settings;
  SamplingParams defaults;
  defaults.temperature = 0.75;
  change_setting(settings, "top_p", "0.5");
  const std::string text = describe_settings(settings, defaults);
  EXPECT_NE(text.find("0.75 (default)"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("  {:<18}0.5 ", "top_p")), std::string::npos) << text;
}

}  // namespace
}  // namespace moeflux::cli
