#include "base/system_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(SystemFileTest, ReadsFilesThatSayTheyAreEmpty) {
  const auto text = read_system_file("/proc/self/status");
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("VmSize:"), std::string::npos);
}

TEST(SystemFileTest, WhatIsNoFileIsAbsent) {
  const TempDir dir;
  EXPECT_FALSE(read_system_file(dir.file("none")));
  EXPECT_FALSE(read_system_file(dir.path()));
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_system_file(dir.file("fifo")), "");  // and does not hang
}

TEST(SystemFileTest, ReadsNoMoreThanAllowed) {
  const TempDir dir;
  const std::string path = dir.write("long", std::string(20000, 'x'));
  EXPECT_EQ(read_system_file(path)->size(), 20000);
  EXPECT_EQ(read_system_file(path, 5000)->size(), 5000);
}

TEST(SystemFileTest, Numbers) {
  EXPECT_EQ(parse_number(" 42\n"), 42);
  EXPECT_EQ(parse_number("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "max", "-1", "1.5", "12 kB", "0x10", "18446744073709551616"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
  const TempDir dir;
  EXPECT_EQ(read_system_number(dir.write("n", "7\n")), 7);
  EXPECT_FALSE(read_system_number(dir.write("m", "max\n")));
}

TEST(SystemFileTest, NumbersByKey) {
  const std::string text =
      "MemTotalX: 1 kB\nMemTotal:   16 kB\nanon 5\nempty\nfile x\nbig: 99999999999999999999 kB\n"
      "huge: 18446744073709551615 kB";
  EXPECT_EQ(find_number(text, "MemTotal"), 16 * 1024);
  EXPECT_EQ(find_number(text, "anon"), 5);
  EXPECT_FALSE(find_number(text, "ano"));
  EXPECT_FALSE(find_number(text, "empty"));
  EXPECT_FALSE(find_number(text, "file"));
  EXPECT_FALSE(find_number(text, "big"));
  EXPECT_FALSE(find_number(text, "huge"));
}

TEST(SystemFileTest, Paths) {
  EXPECT_EQ(under_root("/", "/proc"), "/proc");
  EXPECT_EQ(under_root("", "/proc"), "/proc");
  EXPECT_EQ(under_root("/tmp/x/", "/proc"), "/tmp/x/proc");
}

}  // namespace
}  // namespace moeflux::test
