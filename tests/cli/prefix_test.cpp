// A chat in which every turn is a new process reads only what is new, and says the same.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/program.h"
#include "engine/prefix/prefix_store.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

std::size_t shared(const Json& a, const Json& b) {
  std::size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[n] == b[n]) ++n;
  return n;
}

class PrefixTest : public testing::Test {
 protected:
  Outcome moeflux(std::vector<std::string> arguments) const {
    return run_moeflux(arguments, {.text = "", .env = {{"XDG_CACHE_HOME", directory_.path()}}});
  }
  Json json(const std::vector<std::string>& arguments) const {
    const Outcome outcome = moeflux(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return parse_json(outcome.out, "stdout");
  }
  void say(const std::string& role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
    directory_.write("chat.json", dump_json(messages_));
  }
  Json answer(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"run",        "--json", "--messages", chat_,
                                          "--no-think", "-n16",   "-c2048"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return json(arguments);
  }
  Json prompt_ids() const {
    return json({"template", "--json", "--messages", chat_, "--no-think"})["ids"];
  }

  TempDir directory_;
  const std::string chat_ = directory_.file("chat.json");
  const std::string store_ = directory_.file("moeflux/prefixes");
  // Long enough to be worth a file.
  const std::string text_ =
      "Once upon a time there was a small cat who lived in a house by the sea with a dog. The cat "
      "liked to sit in the sun and the dog liked to run along the sea. One day a bird came to the "
      "house and asked the cat and the dog for some bread. They gave it some, and it sang a song.";
  Json messages_ = Json::array();
};

// Neither the store nor the usage profile: both tell what was talked about.
TEST_F(PrefixTest, NobodyElseCanReadWhatIsKept) {
  namespace fs = std::filesystem;
  const mode_t umask_before = ::umask(022);
  say("system", text_);
  say("user", "What is 12 + 30?");
  answer({});
  ::umask(umask_before);
  EXPECT_EQ(fs::status(directory_.file("moeflux")).permissions(), fs::perms::owner_all);
  int n_files = 0;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(directory_.file("moeflux"))) {
    EXPECT_EQ(entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none)
        << entry.path();
    n_files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_GE(n_files, 3);  // a profile, the ledger, blocks
}

TEST_F(PrefixTest, ATurnReadsOnlyWhatIsNew) {
  constexpr int kTurns = 20;
  Json seen = Json::array();  // all that the model has read or written in the turn before
  std::int64_t n_read = 0, n_prompt = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    say("user", fmt::format("What is {} + {}?", turn + 1, 2 * turn));
    const Json ids = prompt_ids();
    const Json with = answer({});
    EXPECT_EQ(with["usage"]["prompt_tokens"], ids.size());
    if (turn % 5 == 4) {
      const Json without = answer({"--prefix-store", "off"});
      EXPECT_EQ(with["tokens"], without["tokens"]) << turn;
      EXPECT_EQ(without["usage"]["prompt_tokens"], ids.size());
      EXPECT_EQ(without["usage"]["cached_tokens"], 0);
    }
    if (turn > 0) {
      const std::size_t n_known = shared(ids, seen);
      const bool is_kept = n_known >= static_cast<std::size_t>(PrefixWorth().min_tokens);
      EXPECT_EQ(with["usage"]["cached_tokens"], is_kept ? n_known : 0) << turn;
      EXPECT_EQ(with["prefix"]["from"], is_kept ? "store" : "none");
      n_read += static_cast<std::int64_t>(ids.size()) - with["usage"]["cached_tokens"].get<int>();
      n_prompt += static_cast<std::int64_t>(ids.size());
    }
    seen = ids;
    for (const Json& token : with["tokens"]) seen.push_back(token);
    say("assistant", with["text"]);
  }
  EXPECT_LT(5 * n_read, n_prompt);
}

TEST_F(PrefixTest, ShortQuestionsAreNotKept) {
  for (int i = 0; i < 3; ++i) {
    say("user", fmt::format("What is {} + 30?", i));
    EXPECT_EQ(answer({"--prefix-ahead"})["prefix"]["bytes_written"], 0);
    messages_.clear();
  }
  EXPECT_EQ(json({"store", "--json"})["files"], 0);
}

// Then only the question is new.
TEST_F(PrefixTest, AnAnswerThatWasReadAhead) {
  say("system", text_);
  say("user", "What is 12 + 30?");
  const Json first = answer({"--prefix-ahead"});
  ASSERT_EQ(first["finish_reason"], "end");
  say("assistant", first["text"]);
  say("user", "0");
  const Json with_0 = prompt_ids();
  messages_.erase(messages_.end() - 1);
  say("user", "And 7 + 8?");
  const Json second = answer({});
  EXPECT_EQ(second["usage"]["cached_tokens"], shared(with_0, prompt_ids()));
  EXPECT_EQ(second["tokens"], answer({"--prefix-store", "off"})["tokens"]);
}

TEST_F(PrefixTest, OnlyChatsAreKeptUnlessAsked) {
  ASSERT_EQ(moeflux({"run", "-n4", "What is 1 + 1?"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(store_));
  const std::string elsewhere = directory_.file("elsewhere");
  const std::vector<std::string> raw = {"run",     "--json", "--raw", "-n4", "--prefix-store",
                                        elsewhere, text_};
  const Json first = json(raw);
  EXPECT_EQ(first["usage"]["cached_tokens"], 0);
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
  std::vector<std::string> longer = raw;
  longer.back() += first["text"].get<std::string>() + " and more";
  EXPECT_GT(json(longer)["usage"]["cached_tokens"], 16);
}

TEST_F(PrefixTest, AStoreThatCannotBeIsSaidOnce) {
  say("system", text_);
  say("user", "What is 12 + 30?");
  const std::string plain = moeflux({"run", "--messages", chat_, "--prefix-store", "off"}).out;
  for (const char* place : {"/proc/none", "/dev/null/x"}) {
    const Outcome outcome = moeflux({"run", "--messages", chat_, "--prefix-store", place});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.out, plain);
    const std::size_t at = outcome.err.find("prefix store");
    ASSERT_NE(at, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("prefix store", at + 1), std::string::npos) << outcome.err;
    EXPECT_EQ(moeflux({"run", "-q", "--messages", chat_, "--prefix-store", place}).err, "");
  }
  for (const auto& wrong :
       {std::vector<std::string>{"--prefix-size", "x"}, {"--prefix-store", ""}}) {
    std::vector<std::string> arguments = {"run", "--messages", chat_};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(moeflux(arguments).exit_code, 2);
  }
}

TEST_F(PrefixTest, TheStoreCommand) {
  EXPECT_EQ(json({"store", "--json"})["files"], 0);
  say("system", text_);
  say("user", "What is 12 + 30?");
  answer({});
  const Json list = json({"store", "ls", "--json"});
  EXPECT_EQ(list["directory"], store_);
  ASSERT_EQ(list["models"].size(), 1u);
  EXPECT_GE(list["models"][0]["states"], 1);
  EXPECT_NE(list["models"][0]["identity"].get<std::string>().find("fine kv f32"),
            std::string::npos);
  EXPECT_GE(list["written_today"], list["bytes"]);
  EXPECT_NE(moeflux({"store"}).out.find("states"), std::string::npos);
  EXPECT_EQ(json({"store", "verify", "--json"})["damaged"].size(), 0u);

  for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
    if (entry.path().extension() == ".state") std::filesystem::resize_file(entry.path(), 70);
  }
  const Outcome verify = moeflux({"store", "verify"});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_NE(verify.out.find("removed"), std::string::npos) << verify.out;
  EXPECT_EQ(moeflux({"store", "verify"}).exit_code, 0);
  answer({});
  EXPECT_GE(json({"store", "clear", "--json"})["files_removed"], 1);
  EXPECT_EQ(json({"store", "--json"})["files"], 0);
  EXPECT_EQ(moeflux({"store", "sweep"}).exit_code, 2);
}

}  // namespace
}  // namespace moeflux::test
