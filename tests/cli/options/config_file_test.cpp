#include "cli/options/config_file.h"

#include <fmt/format.h>
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
  EXPECT_EQ(values("-0.5e3#x"), std::vector<std::string>{"-500.0"});
  EXPECT_EQ(values("0.1"), std::vector<std::string>{"0.1"});
  EXPECT_EQ(values("[]"), std::vector<std::string>{});
  EXPECT_EQ(values("[1,true,]"), (std::vector<std::string>{"1", "true"}));
  EXPECT_EQ(values(toml_string("a\"\\\n\x01 b")), std::vector<std::string>{"a\"\\\n\x01 b"});
}

TEST(ConfigFile, ReadsWhatElseIsToml) {
  EXPECT_EQ(values("\"\"\"a\nb\"\"\""), std::vector<std::string>{"a\nb"});
  EXPECT_EQ(values("0x10"), std::vector<std::string>{"16"});
  EXPECT_EQ(values("1e3"), std::vector<std::string>{"1000.0"});  // never a whole number
  const ConfigText read = parse_config("z = 1\nserve.port = 2\na = 3\n", "c.toml");
  ASSERT_EQ(read.sections.size(), 1u);
  EXPECT_EQ(read.sections[0].name, "serve");
  EXPECT_EQ(read.sections[0].line, 2);
  ASSERT_EQ(read.entries.size(), 3u);  // in the order of the file
  EXPECT_EQ(read.entries[0].key, "z");
  EXPECT_EQ(read.entries[1].section, "serve");
  EXPECT_EQ(read.entries[1].key, "port");
  EXPECT_EQ(read.entries[2].key, "a");
}

TEST(ConfigFile, SaysWhereAndWhatIsWrong) {
  const auto expect_at = [](const std::string& text, int line, const std::string& part) {
    const std::string found = problem(text);
    EXPECT_TRUE(found.starts_with(fmt::format("c.toml:{}: ", line))) << text << ": " << found;
    EXPECT_NE(found.find(part), std::string::npos) << text << ": " << found;
  };
  const std::string quotes = "text needs quotes";
  EXPECT_EQ(
      problem("\nram = 16G"),
      "c.toml:2: not valid TOML: decimal integer: expected digit, saw 'G'; text needs quotes, "
      "as in ram = \"16G\"");
  for (const char* text : {"x = fine", "x = auto", "x = 8 GB", "x = /home/me", "x = 1__0", "x = .5",
                           "x = inf", "x = 1979-05-27", "x = 08:30:00", "x = [1, on]"})
    expect_at(text, 1, quotes);
  expect_at("ram =", 1, "key-value pair");
  expect_at("ram", 1, "key-value pair");
  expect_at("= 1", 1, "saw '='");
  expect_at("ram = \"16G", 1, "string");
  expect_at("ram = '16G\n'", 1, "string");
  expect_at("x = [1,\n2", 2, "array");
  expect_at("x = [1,\n2 3]", 2, "expected comma or closing ']', saw '3'");
  expect_at("a = 1\n[s]\na = 1\na = 2", 4, "cannot redefine existing integer 'a'");
  expect_at("[s]\n[s]", 2, "cannot redefine existing table 's'");
  for (const char* text : {"[]", "[s", "x = \"\\x\"", "x = \"\\u12\"", "x = \"\\ud800\"",
                           "x = \"\\U00110000\"", "x = \"\\u+123\""})
    expect_at(text, 1, "not valid TOML: ");
  expect_at("a = 1\nb = \"\xFF\"", 2, "utf-8");
  EXPECT_EQ(problem("x = \"\\u0000\""), "c.toml:1: x: a string has no \\u0000");
  EXPECT_EQ(problem("x = [[1]]"), "c.toml:1: x: a list holds plain values only");
  EXPECT_EQ(problem("[[s]]"), "c.toml:1: s: a list holds plain values only");
  EXPECT_EQ(problem("\n[a.b]"), "c.toml:2: a.b: a section has no sections; write [b]");
  EXPECT_EQ(problem("[a]\nb.c = 1"), "c.toml:2: a.b: a section has no sections; write [b]");
}

// toml++ frees nested tables by recursion.
TEST(ConfigFile, RefusesKeysThatAreNestedTooDeeply) {
  std::string key = "a";
  while (key.size() < kMaxConfigBytes / 2) key += ".a";
  for (const std::string& text :
       {key + " = 1", "[" + key + "]", "x = [\"\"\"b\"\"\"\", {" + key + " = 1}]",
        "x = \"\\\\\"\n" + key, "# \"\nx = 'a'\n" + key}) {
    EXPECT_NE(problem(text).find("more than 1000 dots"), std::string::npos) << text.substr(0, 40);
  }
  const std::string dots(2000, '.');
  EXPECT_EQ(values("\"" + dots + "\" # " + dots), std::vector<std::string>{dots});
  EXPECT_EQ(values("'''" + dots + "'''"), std::vector<std::string>{dots});
  const std::string brackets(kMaxConfigBytes / 2, '[');
  EXPECT_NE(problem("x = " + brackets).find("c.toml:1: "), std::string::npos);
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
