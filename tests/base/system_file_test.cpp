#include "base/system_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/fake_root.h"
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

std::vector<std::string> groups(const FakeRoot& root, const std::string& controller = "memory") {
  std::vector<std::string> found = find_cgroup(controller, root.path()).directories;
  for (std::string& directory : found) directory.erase(0, root.path().size());
  return found;
}

using Groups = std::vector<std::string>;

TEST(CgroupTest, UnifiedHierarchy) {
  const FakeRoot root;
  root.unified("/user.slice/app.scope");
  root.make_directory("/sys/fs/cgroup/user.slice/app.scope");
  EXPECT_EQ(find_cgroup("memory", root.path()).version, 2);
  EXPECT_EQ(groups(root), (Groups{"/sys/fs/cgroup/user.slice/app.scope",
                                  "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}));
}

TEST(CgroupTest, ContainerWithANamespaceOfItsOwn) {
  const FakeRoot root;
  root.unified("/");
  EXPECT_EQ(groups(root), Groups{"/sys/fs/cgroup"});
}

TEST(CgroupTest, ContainerThatSeesThePathOfTheHost) {
  const FakeRoot root;
  root.unified("/docker/abc", "/docker/abc");
  EXPECT_EQ(groups(root), Groups{"/sys/fs/cgroup"});

  const FakeRoot deeper;
  deeper.unified("/docker/abc/worker", "/docker/abc");
  deeper.make_directory("/sys/fs/cgroup/worker");
  EXPECT_EQ(groups(deeper), (Groups{"/sys/fs/cgroup/worker", "/sys/fs/cgroup"}));

  const FakeRoot bound;  // the mount says "/", but only the container's part is there
  bound.unified("/docker/abc/worker");
  bound.make_directory("/sys/fs/cgroup/worker");
  EXPECT_EQ(groups(bound), (Groups{"/sys/fs/cgroup/worker", "/sys/fs/cgroup"}));
}

TEST(CgroupTest, SimilarNamesAreNotAncestors) {
  const FakeRoot root;
  root.unified("/docker/abcdef", "/docker/abc");
  root.make_directory("/sys/fs/cgroup/def");
  EXPECT_EQ(groups(root), Groups{"/sys/fs/cgroup"});
}

TEST(CgroupTest, GroupOutsideOfTheNamespaceStaysAtTheMount) {
  const FakeRoot root;
  root.unified("/../../other");
  root.make_directory("/sys/fs/other");
  EXPECT_EQ(groups(root), Groups{"/sys/fs/cgroup"});
}

TEST(CgroupTest, HierarchyOfItsOwn) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/ignored\n");
  root.write("/proc/self/mountinfo",
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  root.make_directory("/sys/fs/cgroup/memory/a/b");
  root.make_directory("/sys/fs/cgroup/cpu,cpuacct/a");
  root.make_directory("/sys/fs/cgroup/unified/ignored");
  EXPECT_EQ(find_cgroup("memory", root.path()).version, 1);
  EXPECT_EQ(groups(root), (Groups{"/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a",
                                  "/sys/fs/cgroup/memory"}));
  EXPECT_EQ(groups(root, "cpu")[0], "/sys/fs/cgroup/cpu,cpuacct/a");
  EXPECT_EQ(find_cgroup("io", root.path()).version, 2);
  EXPECT_EQ(groups(root, "io")[0], "/sys/fs/cgroup/unified/ignored");
}

TEST(CgroupTest, MountPointsMayHaveSpaces) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/g\n");
  root.write("/proc/self/mountinfo", "1 1 0:1 / /my\\040groups rw - cgroup2 none rw\n");
  root.make_directory("/my groups/g");
  EXPECT_EQ(groups(root), (Groups{"/my groups/g", "/my groups"}));
}

TEST(CgroupTest, MalformedFilesAreNoGroup) {
  const FakeRoot root;
  EXPECT_EQ(find_cgroup("memory", root.path()).version, 0);
  const std::string mounts = "1 1 0:1 / /m rw - cgroup2 none rw\n";
  root.make_directory("/m");
  for (const char* text : {"", "\n\n", "0", "0:", ":::", "memory", "0:memory", "x::/a"}) {
    root.write("/proc/self/cgroup", text);
    root.write("/proc/self/mountinfo", mounts);
    EXPECT_TRUE(find_cgroup("cpu", root.path()).directories.empty()) << text;
  }
  root.write("/proc/self/cgroup", "0::/a\n");
  for (const char* text :
       {"", "-", "1 1 0:1 / /m rw -", "- cgroup2 none rw", "1 1 0:1 / /m rw cgroup2 none rw",
        "1 1 0:1 / /none rw - cgroup2 none rw", "1 1 0:1 / /m\\9 rw - cgroup2 none rw"}) {
    root.write("/proc/self/mountinfo", text);
    EXPECT_TRUE(groups(root).empty()) << text;
  }
  root.write("/proc/self/mountinfo", mounts);
  for (const std::string& path : {std::string(), std::string("a"), std::string("//"),
                                  std::string(100000, '/'), std::string("/a\0b", 4)}) {
    root.write("/proc/self/cgroup", "0::" + path + "\n");
    EXPECT_EQ(groups(root), Groups{"/m"}) << path.substr(0, 20);
  }
}

TEST(CgroupTest, ThisMachineDoesNotThrow) {
  const Cgroup cgroup = find_cgroup("memory");
  EXPECT_EQ(cgroup.version == 0, cgroup.directories.empty());
}

}  // namespace
}  // namespace moeflux::test
