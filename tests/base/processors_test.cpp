#include "base/processors.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace moeflux {
namespace {

using test::FakeRoot;

TEST(Processors, Lists) {
  EXPECT_EQ(parse_processor_list("0-3,8\n"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_processor_list("5"), (std::vector<int>{5}));
  for (const char* bad : {"", "x", "3-1", "0-99999999", "1,,2", "-"}) {
    EXPECT_TRUE(parse_processor_list(bad).empty()) << bad;
  }
}

// Two sockets of two cores with two threads each, numbered as is usual: threads last.
void write_topology(FakeRoot& root) {
  for (int i = 0; i < 8; ++i) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/";
    root.write(topology + "core_id", std::to_string(i % 2) + "\n");
    root.write(topology + "physical_package_id", std::to_string(i / 2 % 2) + "\n");
  }
}

TEST(Processors, OneThreadPerPhysicalCore) {
  FakeRoot root;
  write_topology(root);
  EXPECT_EQ(default_thread_count({0, 1, 2, 3, 4, 5, 6, 7}, root.path()), 4);
  EXPECT_EQ(default_thread_count({0, 4}, root.path()), 1);     // both of one core
  EXPECT_EQ(default_thread_count({0, 1, 4}, root.path()), 2);  // of one socket
  EXPECT_EQ(default_thread_count({0, 2}, root.path()), 2);     // the same number on two sockets
  EXPECT_EQ(default_thread_count({}, root.path()), 1);
}

TEST(Processors, WithoutADescriptionEveryProcessorCounts) {
  FakeRoot root;
  EXPECT_EQ(default_thread_count({0, 1, 2}, root.path()), 3);
}

TEST(Processors, AQuotaLimitsThreads) {
  FakeRoot root;
  write_topology(root);
  root.unified("/box");
  root.write("/sys/fs/cgroup/box/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(processor_quota(root.path()), 2.5);
  EXPECT_EQ(default_thread_count({0, 1, 2, 3, 4, 5, 6, 7}, root.path()), 3);
  EXPECT_EQ(default_thread_count({0, 1}, root.path()), 2);
  root.write("/sys/fs/cgroup/box/cpu.max", "max 100000\n");
  EXPECT_EQ(processor_quota(root.path()), 0);
  EXPECT_EQ(default_thread_count({0, 1, 2, 3, 4, 5, 6, 7}, root.path()), 4);
}

TEST(Processors, ThisMachineHasAtLeastOne) {
  EXPECT_GE(default_thread_count(), 1);
  int value = 7;
  spread_over_memory_nodes(&value, 0);  // nothing to spread
  EXPECT_EQ(value, 7);
}

}  // namespace
}  // namespace moeflux
