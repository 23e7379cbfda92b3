#include "cli/options/config.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

using namespace cli;

constexpr const char* kVariable = "MOEFLUX_CONFIG_TEST_NUMBER";

// A line with two commands, whose configuration is two files: the user's and the system's.
struct Fixture {
  TempDir directory;
  CommandLine line{"test", "1"};
  std::int64_t number = 1;
  bool quiet = false, secret_flag = false;
  std::optional<std::string> name, default_name, file;
  std::vector<std::string> list;

  Fixture() {
    ::unsetenv(kVariable);
    Command& go = line.add("go", "Go.");
    go.arguments("[X]", 1)
        .option("-n,--number", number, "N", "number")
        .env(kVariable)
        .flag("-q,--quiet", quiet, "quiet")
        .option("--name", name, "T", "name")
        .fallback(default_name)
        .option("--file", file, "FILE", "file")
        .option("--list", list, "T", "list")
        .secret()
        .flag("--only", secret_flag, "only here")
        .command_line_only();
    go.run([this](const auto&) {
      if (number > 99) throw UsageError("--number must be at most 99", "go");
      return 7;
    });
    line.add("stop", "Stop.").option("--when", name, "T", "when").run([](const auto&) {
      return 8;
    });
    line.use_config([this](const ConfigChoice& choice) -> std::vector<ConfigPlace> {
      if (choice.none) return {};
      return {{choice.file.value_or(directory.file("user.toml")), "user", choice.file.has_value()},
              {directory.file("system.toml"), "system", false}};
    });
  }
  ~Fixture() { ::unsetenv(kVariable); }

  int run(std::vector<std::string> given = {}) {
    given.insert(given.begin(), "go");
    return line.run(given);
  }
};

// What is said to a file and some arguments, with the file called FILE.
std::string problem(const std::string& config, const std::vector<std::string>& given = {},
                    const char* variable = "") {
  Fixture f;
  const std::string file = f.directory.write("user.toml", config);
  ::setenv(kVariable, variable, 1);
  try {
    f.run(given);
  } catch (const UsageError& error) {
    std::string text = error.what();
    const std::size_t at = text.find(file);
    return at == std::string::npos ? text : text.replace(at, file.size(), "FILE");
  }
  return "no error";
}

TEST(Config, FlagThenEnvironmentThenFilesThenDefault) {
  const auto number = [](bool flag, bool variable, bool user, bool system) {
    Fixture f;
    if (user) f.directory.write("user.toml", "number = 2\n");
    if (system) f.directory.write("system.toml", "number = 3\n[go]\nnumber = 4\n");
    if (variable) ::setenv(kVariable, "5", 1);
    EXPECT_EQ(f.run(flag ? std::vector<std::string>{"-n", "6"} : std::vector<std::string>{}), 7);
    return f.number;
  };
  EXPECT_EQ(number(true, true, true, true), 6);
  EXPECT_EQ(number(false, true, true, true), 5);
  EXPECT_EQ(number(false, false, true, true), 2);   // the user's file, whatever sections there are
  EXPECT_EQ(number(false, false, false, true), 4);  // a section before the top
  EXPECT_EQ(number(false, false, false, false), 1);
}

TEST(Config, FillsEveryKindOfOption) {
  Fixture f;
  f.directory.write("user.toml",
                    "quiet = true\nname = \"n\"\nfile = \"~/x\"\nlist = [\"a,b\", \"[c]\"]\n");
  f.run();
  EXPECT_TRUE(f.quiet);
  EXPECT_FALSE(f.name.has_value());
  EXPECT_EQ(f.default_name, "n");  // not from the command line
  EXPECT_EQ(f.file, expand_home("~/x"));
  EXPECT_EQ(f.list, (std::vector<std::string>{"a,b", "[c]"}));
  EXPECT_EQ(expand_home("~x"), "~x");
}

TEST(Config, TheCommandLineTakesAllBack) {
  Fixture f;
  f.directory.write("user.toml", "quiet = true\nlist = \"a\"\n");
  f.run({"--quiet=false", "--list", "b"});
  EXPECT_FALSE(f.quiet);
  EXPECT_EQ(f.list, std::vector<std::string>{"b"});
  Fixture g;
  g.directory.write("user.toml", "quiet = true\n");
  g.run({"--no-config"});
  EXPECT_FALSE(g.quiet);
}

TEST(Config, AFileThatIsNamedMustExist) {
  Fixture f;
  EXPECT_THROW(f.run({"--config", f.directory.file("missing")}), Error);
  Fixture g;
  g.run({"--config=" + g.directory.write("other.toml", "number = 9\n")});
  EXPECT_EQ(g.number, 9);
}

TEST(Config, RefusesWhatNoCommandHas) {
  EXPECT_EQ(problem("nubmer = 1\n"), "FILE:1: unknown option nubmer; did you mean number?");
  EXPECT_EQ(problem("[go]\n\nnubmer = 1\n"),
            "FILE:3: unknown option nubmer of go; did you mean number?");
  EXPECT_EQ(problem("[stp]\n"), "FILE:1: [stp] is no command; did you mean stop?");
  EXPECT_EQ(problem("[stop]\nnumber = 1\n"), "FILE:2: number is no option of stop, but of go");
  EXPECT_EQ(problem("only = true\n"), "FILE:1: unknown option only");
  EXPECT_EQ(problem("help = true\n"), "FILE:1: unknown option help");
  EXPECT_EQ(problem("[stop]\nwhen = \"x\"\n"), "no error");  // of another command
}

TEST(Config, SaysWhichSourceHasABadValue) {
  EXPECT_EQ(problem("number = \"x\"\n"), "FILE:1: number: \"x\" is not a whole number");
  EXPECT_EQ(problem("quiet = 1\n"), "FILE:1: quiet: \"1\" is not true or false");
  EXPECT_EQ(problem("number = [1]\n"), "FILE:1: number takes one value, not a list");
  EXPECT_EQ(problem("number = 100\n"), "--number must be at most 99 (set by FILE:1)");
  EXPECT_EQ(problem("", {"-n", "100"}), "--number must be at most 99");
  EXPECT_EQ(problem("", {}, "y"), std::string(kVariable) + ": \"y\" is not a whole number");
  EXPECT_EQ(problem("", {}, "100"),
            std::string("--number must be at most 99 (set by environment ") + kVariable + ")");
}

TEST(Config, SettingsNameTheirOrigin) {
  Fixture f;
  f.directory.write("user.toml", "name = \"n\"\n");
  ::setenv(kVariable, "5", 1);
  const std::vector<Setting> settings = f.line.settings("go", {"-q", "-q"}, {});
  ASSERT_EQ(settings.size(), 6u);
  EXPECT_EQ(settings[0].origin, std::string("environment ") + kVariable);
  EXPECT_EQ(settings[0].values, std::vector<std::string>{"5"});
  EXPECT_EQ(settings[1].origin, "command line");
  EXPECT_EQ(settings[1].values, std::vector<std::string>{"true"});
  EXPECT_EQ(settings[2].origin, f.directory.file("user.toml") + ":1");
  EXPECT_EQ(settings[3].origin, "default");
  EXPECT_TRUE(settings[3].values.empty());
  EXPECT_TRUE(settings[4].option.secret);
}

// The program, with `text` as the user's file.
class ConfigProgram : public ::testing::Test {
 protected:
  std::string file() const { return home_.file("moeflux/config.toml"); }
  void configure(const std::string& text) {
    run({"config", "init", "--force"});
    home_.write("moeflux/config.toml", text);
  }
  Outcome run(const std::vector<std::string>& arguments,
              std::map<std::string, std::string> env = {}) {
    env.emplace("XDG_CONFIG_HOME", home_.path());
    return run_moeflux(arguments, {.text = "", .env = std::move(env)});
  }
  TempDir home_;
};

TEST_F(ConfigProgram, ShowsValuesWithTheirOrigin) {
  configure("ram = \"3G\"\n[serve]\nport = 8080\napi-key = [\"hush\"]\n");
  const Outcome text =
      run({"config", "show", "serve", "--", "--queue", "5"}, {{"MOEFLUX_THREADS", "2"}});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  const auto line = [](const std::string& setting, const std::string& origin) {
    return fmt::format("\n{:<40} # {}\n", setting, origin);
  };
  EXPECT_EQ(text.out.find("[serve]\n"), 0u) << text.out;
  for (const std::string& part :
       {line("ram = \"3G\"", file() + ":1"), line("port = 8080", file() + ":3"),
        line("api-key = [\"********\"]", file() + ":4"), line("queue = 5", "command line"),
        line("threads = 2", "environment MOEFLUX_THREADS"), line("host = \"127.0.0.1\"", "default"),
        line("# ctx-size", "default")}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " is not in " << text.out;
  }
  EXPECT_EQ(text.out.find("hush"), std::string::npos);
  // What it prints is a configuration file itself.
  EXPECT_EQ(run({"config", "show", "--config", home_.write("shown.toml", text.out)}).exit_code, 0);
}

TEST_F(ConfigProgram, ShowsAllCommandsAsJson) {
  configure("color = \"off\"\n[serve]\nport = 8080\npreload = true\n[run]\ntemp = 0.5\n");
  const Json json =
      parse_json(run({"config", "show", "--json", "--changed"}, {{"NO_COLOR", ""}}).out, "stdout");
  EXPECT_EQ(json["serve"]["port"]["value"], 8080);
  EXPECT_EQ(json["serve"]["port"]["source"], "file");
  EXPECT_EQ(json["serve"]["port"]["where"], file() + ":3");
  EXPECT_EQ(json["serve"]["preload"]["value"], true);
  EXPECT_EQ(json["run"]["temp"]["value"], 0.5);
  EXPECT_EQ(json["run"]["model"]["source"], "environment");
  EXPECT_EQ(json["run"]["model"]["where"], "MOEFLUX_MODEL");
  EXPECT_EQ(json["bench"]["color"]["value"], "off");
  EXPECT_FALSE(json["run"].contains("port"));
  EXPECT_FALSE(json["run"].contains("ram"));  // the default
}

TEST_F(ConfigProgram, CommandsUseIt) {
  configure("ram = \"1K\"\n");
  const Outcome refused = run({"run", "-n", "1", "hi"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("needs at least"), std::string::npos) << refused.err;
  EXPECT_EQ(run({"run", "-n", "1", "hi"}, {{"MOEFLUX_RAM", "2G"}}).exit_code, 0);
  EXPECT_EQ(run({"run", "-n", "1", "--no-config", "hi"}).exit_code, 0);

  configure("kv = \"f13\"\n");
  const Outcome bad = run({"run", "-n", "1", "hi"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(
      bad.err.find("--kv: \"f13\" is not one of f32, f16, bf16, q8 (set by " + file() + ":1)"),
      std::string::npos)
      << bad.err;
  for (const char* command : {"version", "--help", "completion"})
    EXPECT_EQ(run({command}).err.find("f13"), std::string::npos) << command;
}

TEST_F(ConfigProgram, AModelInItIsTheDefaultOne) {
  configure("model = \"" + source_path("models/demo-mla") + "\"\n");
  const std::map<std::string, std::string> no_variable{{"MOEFLUX_MODEL", ""}};
  const auto family = [&](const std::vector<std::string>& arguments) {
    return parse_json(run(arguments, no_variable).out, "stdout")["family"];
  };
  EXPECT_EQ(family({"show", "--json"}), "deepseek_v3");
  EXPECT_EQ(family({"show", "--json", source_path("models/demo")}), "qwen3_5_moe");
  EXPECT_EQ(family({"show", "--json", "-m", source_path("models/demo")}), "qwen3_5_moe");
}

TEST_F(ConfigProgram, BrokenFilesDoNotBreakWhatRepairsThem) {
  configure("nonsense\n");
  EXPECT_EQ(run({"run", "hi"}).exit_code, 2);
  EXPECT_EQ(run({"config", "show"}).exit_code, 2);
  EXPECT_EQ(run({"version"}).exit_code, 0);
  EXPECT_EQ(run({"run", "--help"}).exit_code, 0);
  const Outcome path = run({"config", "path"});
  EXPECT_EQ(path.out.find("user            exists   " + file() + "\n"), 0u) << path.out;
  EXPECT_NE(path.out.find("/etc/moeflux/config.toml\n"), std::string::npos);
}

TEST_F(ConfigProgram, InitWritesAFileThatSaysNothingYet) {
  const Outcome written = run({"config", "init"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, file() + "\n");
  namespace fs = std::filesystem;
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  const std::string text = read_text_file(file());
  EXPECT_TRUE(parse_config(text, "").entries.empty());
  for (const char* part : {"\n# ram = \"\"\n", "\n# [serve]\n", "\n# port = 9099\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
  const Outcome again = run({"config", "init"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("exists already"), std::string::npos) << again.err;
  EXPECT_EQ(run({"config", "init", "--force"}).exit_code, 0);

  // Every option there is one that files may set.
  std::string active;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    const bool is_setting =
        line.find(" = ") != std::string::npos && line.find(' ', 2) == line.find(" = ");
    if (is_setting || line.starts_with("# [")) active += line.substr(2) + "\n";
    at = end + 1;
  }
  const Outcome all = run({"config", "path", "--config", home_.write("all.toml", active)});
  EXPECT_EQ(all.exit_code, 0);
  const Outcome shown = run({"config", "show", "doctor", "--config", home_.file("all.toml")});
  EXPECT_EQ(shown.exit_code, 0) << shown.err << active;
}

TEST_F(ConfigProgram, RefusesWhatItCannotDo) {
  EXPECT_EQ(run({"config", "edit"}).exit_code, 2);
  EXPECT_EQ(run({"config", "path", "x"}).exit_code, 2);
  EXPECT_EQ(run({"config", "show", "srve"}).exit_code, 2);
  EXPECT_EQ(run({"config", "show", "--config", "x", "--no-config"}).exit_code, 2);
  const Outcome missing = run({"run", "hi"}, {{"MOEFLUX_CONFIG", home_.file("missing")}});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("missing"), std::string::npos) << missing.err;
}

}  // namespace
}  // namespace moeflux::test
