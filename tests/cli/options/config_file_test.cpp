#include "cli/options/config_file.h"

#include <gtest/gtest.h>

#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

std::string problem(const std::string& text) {
  try {
    parse_config(text, "c.toml");
  } catch (const UsageError& error) {
    EXPECT_EQ(error.command(), "config");
    return error.what();
  }
  return "no error";
}

std::vector<std::string> values(const std::string& text) {
  const ConfigText read = parse_config("key = " + text, "c.toml");
  EXPECT_EQ(read.entries.size(), 1u) << text;
  return read.entries.empty() ? std::vector<std::string>() : read.entries[0].values;
}

TEST(ConfigFile, ReadsSectionsAndValues) {
  const ConfigText read = parse_config(
      "# all\n\nram = \"16G\"  # much\r\nverbose=true\n\n"
      "[ serve ] # only\n\tport = 8_080\ncors-origin = [ \"a\", # first\n 'b',\n]\n[empty]",
      "c.toml");
  ASSERT_EQ(read.entries.size(), 4u);
  EXPECT_EQ(read.entries[0].section, "");
  EXPECT_EQ(read.entries[0].key, "ram");
  EXPECT_EQ(read.entries[0].values, std::vector<std::string>{"16G"});
  EXPECT_EQ(read.entries[0].line, 3);
  EXPECT_EQ(read.entries[1].values, std::vector<std::string>{"true"});
  EXPECT_EQ(read.entries[2].section, "serve");
  EXPECT_EQ(read.entries[2].values, std::vector<std::string>{"8080"});
  EXPECT_FALSE(read.entries[2].is_list);
  EXPECT_EQ(read.entries[3].values, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(read.entries[3].is_list);
  EXPECT_EQ(read.entries[3].line, 8);
  ASSERT_EQ(read.sections.size(), 2u);
  EXPECT_EQ(read.sections[1].name, "empty");
  EXPECT_EQ(read.sections[1].line, 11);
  EXPECT_TRUE(parse_config("", "c.toml").entries.empty());
}

TEST(ConfigFile, ReadsEveryKindOfValue) {
  EXPECT_EQ(values("\"a\\tb\\n\\\"\\\\\\u00e9\\U0001F600\""),
            std::vector<std::string>{"a\tb\n\"\\\xC3\xA9\xF0\x9F\x98\x80"});
  EXPECT_EQ(values("'C:\\dir\"'"), std::vector<std::string>{"C:\\dir\""});
  EXPECT_EQ(values("\"# no comment\""), std::vector<std::string>{"# no comment"});
  EXPECT_EQ(values("+5"), std::vector<std::string>{"5"});
  EXPECT_EQ(values("-0.5e3#x"), std::vector<std::string>{"-0.5e3"});
  EXPECT_EQ(values("[]"), std::vector<std::string>{});
  EXPECT_EQ(values("[1,true,]"), (std::vector<std::string>{"1", "true"}));
  EXPECT_EQ(values(toml_string("a\"\\\n\x01 b")), std::vector<std::string>{"a\"\\\n\x01 b"});
}

TEST(ConfigFile, SaysWhereAndWhatIsWrong) {
  EXPECT_EQ(problem("\nram = 16G"), "c.toml:2: ram: text needs quotes: ram = \"16G\"");
  EXPECT_EQ(problem("ram ="), "c.toml:1: ram: the value is missing");
  EXPECT_EQ(problem("ram"), "c.toml:1: expected = after ram, not end of the line");
  EXPECT_EQ(problem("ram = 1 2"), "c.toml:1: unexpected \"2\" after the value");
  EXPECT_EQ(problem("ram = \"16G"), "c.toml:1: ram: the string has no closing quote");
  EXPECT_EQ(problem("ram = '16G\n'"), "c.toml:1: ram: the string has no closing quote");
  EXPECT_EQ(problem("ram = \"\"\"a\"\"\""),
            "c.toml:1: ram: a string ends in its line; write \\n for a new one");
  EXPECT_EQ(problem("x = [1,\n2"), "c.toml:2: the list x has no end");
  EXPECT_EQ(problem("x = [1,\n2 3]"), "c.toml:2: expected a comma or ] in the list x, not \"3\"");
  EXPECT_EQ(problem("x = [[1]]"), "c.toml:1: x: a list holds plain values only");
  EXPECT_EQ(problem("serve.port = 1"),
            "c.toml:1: \"serve.\": a command's options stand in its section [serve]");
  EXPECT_EQ(problem("a = 1\n[s]\na = 1\na = 2"), "c.toml:4: a is set in line 3 already");
  EXPECT_EQ(problem("[s]\n[s]"), "c.toml:2: section [s] begins in line 1 already");
  for (const char* text : {"[]", "[[s]]", "[a.b]", "[s"}) {
    EXPECT_EQ(problem(text),
              "c.toml:1: a section is the name of a command in brackets, such as [serve]")
        << text;
  }
  for (const char* text : {"x = \"\\x\"", "x = \"\\u12\"", "x = \"\\ud800\"", "x = \"\\u0000\"",
                           "x = \"\\U00110000\"", "x = \"\\u+123\""}) {
    EXPECT_NE(problem(text).find("is no escape"), std::string::npos) << text;
  }
  for (const char* text : {"x = 0x10", "x = inf", "x = 1979-05-27", "x = 1__0", "x = .5"})
    EXPECT_NE(problem(text).find("text needs quotes"), std::string::npos) << text;
  EXPECT_EQ(problem("a = 1\nb = \"\xFF\""), "c.toml:2: is not UTF-8 text");
  EXPECT_EQ(problem("= 1"), "c.toml:1: expected an option such as ram = \"16G\", not \"=\"");
}

// However a file is cut off, it is read or refused.
TEST(ConfigFile, EveryBeginningIsReadOrRefused) {
  const std::string text =
      "# c\nram = \"1\\u00e96G\" # d\n[serve]\nport = 80\nkeys = ['a', \"b\",\n 3.5]\nx = true\r\n";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string result = problem(text.substr(0, n));
    EXPECT_TRUE(result == "no error" || result.starts_with("c.toml:")) << result;
  }
  EXPECT_EQ(problem(text), "no error");
}

}  // namespace
}  // namespace moeflux::cli
