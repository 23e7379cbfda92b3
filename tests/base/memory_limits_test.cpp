#include "base/memory_limits.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace moeflux::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void write_meminfo(const FakeRoot& root, std::uint64_t total, std::uint64_t available) {
  root.write("/proc/meminfo", "MemTotal:       " + std::to_string(total / 1024) +
                                  " kB\nMemFree:        1024 kB\nMemAvailable:   " +
                                  std::to_string(available / 1024) +
                                  " kB\nSwapTotal:      2048 kB\nSwapFree:       1024 kB\n");
}

void write_group(const FakeRoot& root, const std::string& group, const std::string& max,
                 std::uint64_t current, std::uint64_t inactive = 0, std::uint64_t active = 0) {
  const std::string directory = "/sys/fs/cgroup" + group;
  root.write(directory + "/memory.max", max + "\n");
  root.write(directory + "/memory.current", std::to_string(current) + "\n");
  root.write(directory + "/memory.stat", "anon 1\nfile 2\ninactive_file " +
                                             std::to_string(inactive) + "\nactive_file " +
                                             std::to_string(active) + "\n");
}

TEST(MemoryLimitsTest, MachineWithoutGroups) {
  const FakeRoot root;
  write_meminfo(root, 32 * kGiB, 24 * kGiB);
  const MemoryLimits limits = read_memory_limits(root.path());
  EXPECT_EQ(limits.total, 32 * kGiB);
  EXPECT_EQ(limits.available, 24 * kGiB);
  EXPECT_EQ(limits.swap_total, 2048 * 1024);
  EXPECT_EQ(limits.swap_free, 1024 * 1024);
  EXPECT_EQ(limits.cgroup.version, 0);
  EXPECT_EQ(limits.cgroup.limit(), kNoLimit);
  EXPECT_EQ(usable_memory(limits), 24 * kGiB);
  EXPECT_EQ(default_ram_budget(limits), 24 * kGiB - 32 * kGiB / 20);
}

TEST(MemoryLimitsTest, PageCacheOfTheGroupCountsAsFree) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.unified("/");
  write_group(root, "", std::to_string(8 * kGiB), 7 * kGiB, 4 * kGiB, 2 * kGiB);
  const CgroupMemory group = read_memory_limits(root.path()).cgroup;
  EXPECT_EQ(group.version, 2);
  EXPECT_EQ(group.limit(), 8 * kGiB);
  EXPECT_EQ(group.usage, 7 * kGiB);
  EXPECT_EQ(group.reclaimable, 6 * kGiB);
  EXPECT_EQ(group.left, 7 * kGiB);
  EXPECT_EQ(default_ram_budget(read_memory_limits(root.path())), 7 * kGiB - 512 * kMiB);
}

// Another program has read its file again and again: all of its pages are active ones.
TEST(MemoryLimitsTest, AGroupFullOfPagesUsedLately) {
  const FakeRoot root;
  write_meminfo(root, 24 * kGiB, 23 * kGiB);
  root.unified("/");
  const std::uint64_t limit = 6'000'000'000;
  write_group(root, "", std::to_string(limit), limit, 40 * kMiB, limit - 80 * kMiB);
  EXPECT_EQ(default_ram_budget(read_memory_limits(root.path())), limit - 40 * kMiB - 512 * kMiB);
  EXPECT_GT(default_ram_budget(read_memory_limits(root.path())), 5 * kGiB);
}

TEST(MemoryLimitsTest, WhatIsNotReclaimable) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.unified("/");
  write_group(root, "", std::to_string(8 * kGiB), 8 * kGiB);
  // Shared memory counts as file, but lies on the lists of anonymous pages; locked pages lie on one
  // of their own.
  root.write("/sys/fs/cgroup/memory.stat",
             "anon 1073741824\nfile 6442450944\nshmem 2147483648\nfile_mapped 1073741824\n"
             "file_dirty 536870912\nfile_writeback 0\ninactive_anon 3221225472\nactive_anon 0\n"
             "inactive_file 1073741824\nactive_file 2147483648\nunevictable 1073741824\n"
             "slab_reclaimable 536870912\nslab_unreclaimable 536870912\n");
  const CgroupMemory group = read_memory_limits(root.path()).cgroup;
  EXPECT_EQ(group.reclaimable, 3 * kGiB + 256 * kMiB);
  EXPECT_EQ(group.left, 3 * kGiB + 256 * kMiB);
}

TEST(MemoryLimitsTest, TheGroupWithTheLeastLeftCounts) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.unified("/outer/inner");
  write_group(root, "/outer/inner", std::to_string(4 * kGiB), kGiB);
  // A wider limit, but neighbours have used nearly all of it.
  write_group(root, "/outer", std::to_string(16 * kGiB), 14 * kGiB);
  const CgroupMemory group = read_memory_limits(root.path()).cgroup;
  EXPECT_EQ(group.limit(), 4 * kGiB);
  EXPECT_EQ(group.usage, kGiB);
  EXPECT_EQ(group.left, 2 * kGiB);
}

TEST(MemoryLimitsTest, AncestorsLimitAGroupWithoutALimit) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.unified("/outer/inner");
  write_group(root, "/outer/inner", "max", kGiB);
  write_group(root, "/outer", std::to_string(3 * kGiB), kGiB);
  EXPECT_EQ(read_memory_limits(root.path()).cgroup.left, 2 * kGiB);
}

TEST(MemoryLimitsTest, TheSoftLimitCounts) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.unified("/");
  write_group(root, "", std::to_string(8 * kGiB), kGiB);
  root.write("/sys/fs/cgroup/memory.high", std::to_string(6 * kGiB) + "\n");
  root.write("/sys/fs/cgroup/memory.swap.max", "0\n");
  root.write("/sys/fs/cgroup/memory.swap.current", "0\n");
  const CgroupMemory group = read_memory_limits(root.path()).cgroup;
  EXPECT_EQ(group.hard_limit, 8 * kGiB);
  EXPECT_EQ(group.soft_limit, 6 * kGiB);
  EXPECT_EQ(group.limit(), 6 * kGiB);
  EXPECT_EQ(group.left, 5 * kGiB);
  EXPECT_EQ(group.swap_limit, 0);
}

class VersionOneTest : public ::testing::Test {
 protected:
  VersionOneTest() {
    write_meminfo(root_, 64 * kGiB, 60 * kGiB);
    root_.write("/proc/self/cgroup", "4:memory:/docker/abc\n0::/\n");
    root_.write("/proc/self/mountinfo",
                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write("limit_in_bytes", 8 * kGiB);
    write("usage_in_bytes", 5 * kGiB);
  }
  void write(const std::string& name, std::uint64_t value) const {
    root_.write("/sys/fs/cgroup/memory/memory." + name, std::to_string(value) + "\n");
  }
  CgroupMemory read() const { return read_memory_limits(root_.path()).cgroup; }
  FakeRoot root_;
};

TEST_F(VersionOneTest, LimitAndUsage) {
  root_.write("/sys/fs/cgroup/memory/memory.stat",
              "inactive_file 1\ntotal_inactive_file 536870912\ntotal_active_file 536870912\n");
  write("memsw.limit_in_bytes", 9 * kGiB);
  write("memsw.usage_in_bytes", 5 * kGiB + 7);
  EXPECT_EQ(read().version, 1);
  EXPECT_EQ(read().limit(), 8 * kGiB);
  EXPECT_EQ(read().left, 4 * kGiB);
  EXPECT_EQ(read().swap_limit, kGiB);
  EXPECT_EQ(read().swap_usage, 7);
}

TEST_F(VersionOneTest, TheLargestNumberIsNoLimit) {
  write("limit_in_bytes", 9223372036854771712u);
  EXPECT_EQ(read().limit(), kNoLimit);
  EXPECT_EQ(read().left, kNoLimit);
}

TEST_F(VersionOneTest, LimitsOfGroupsThatAreNotMountedHere) {
  root_.write("/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 6442450944\n");
  EXPECT_EQ(read().limit(), 6 * kGiB);
  EXPECT_EQ(read().left, kGiB);
}

TEST(MemoryLimitsTest, ResourceLimits) {
  const FakeRoot root;
  write_meminfo(root, 64 * kGiB, 60 * kGiB);
  root.write("/proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max data size             unlimited            unlimited            bytes     \n"
             "Max address space         4294967296           unlimited            bytes     \n");
  root.write("/proc/self/status", "VmSize:\t 1048576 kB\nVmData:\t 1024 kB\n");
  const MemoryLimits limits = read_memory_limits(root.path());
  EXPECT_EQ(limits.data_left, kNoLimit);
  EXPECT_EQ(limits.address_space_left, 3 * kGiB);
  EXPECT_EQ(usable_memory(limits), 3 * kGiB);
}

TEST(MemoryLimitsTest, OldKernelsWithoutMemAvailable) {
  EXPECT_EQ(available_in("MemFree: 10 kB\nCached: 30 kB\nShmem: 5 kB\n"), 35 * 1024);
  EXPECT_FALSE(available_in("MemTotal: 10 kB\n"));
}

TEST(MemoryLimitsTest, ReserveIsATwentiethWithinBounds) {
  EXPECT_EQ(memory_reserve(100 * kGiB), 5 * kGiB);
  EXPECT_EQ(memory_reserve(8 * kGiB), 512 * kMiB);
  EXPECT_EQ(memory_reserve(kGiB), 256 * kMiB);
  EXPECT_EQ(memory_reserve(0), 0);
}

TEST(MemoryLimitsTest, WithLittleLeftTheBudgetIsHalfOfIt) {
  MemoryLimits limits;
  limits.total = 16 * kGiB;
  limits.available = kGiB;
  EXPECT_EQ(default_ram_budget(limits), 512 * kMiB);
  limits.available = 0;
  EXPECT_EQ(default_ram_budget(limits), 0);
}

TEST(MemoryLimitsTest, MalformedFilesLimitNothing) {
  const FakeRoot root;
  for (const char* text : {"", "garbage", "-5", "99999999999999999999999", "\n\n", "max"}) {
    root.unified("/");
    root.write("/proc/meminfo", text);
    root.write("/proc/self/limits", std::string("Max address space ") + text);
    for (const char* name : {"max", "high", "current", "stat", "swap.max", "swap.current"}) {
      root.write(std::string("/sys/fs/cgroup/memory.") + name, text);
    }
    const MemoryLimits limits = read_memory_limits(root.path());
    EXPECT_EQ(limits.cgroup.limit(), kNoLimit) << text;
    EXPECT_EQ(limits.cgroup.left, kNoLimit) << text;
    EXPECT_EQ(limits.address_space_left, kNoLimit) << text;
    EXPECT_EQ(limits.available, 0) << text;
    EXPECT_EQ(default_ram_budget(limits), 0) << text;
  }
}

TEST(MemoryLimitsTest, ReclaimableNeverExceedsUsage) {
  const FakeRoot root;
  write_meminfo(root, kGiB, kGiB);
  root.unified("/");
  write_group(root, "", std::to_string(kGiB), 100, UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(read_memory_limits(root.path()).cgroup.reclaimable, 100);
  EXPECT_EQ(read_memory_limits(root.path()).cgroup.left, kGiB);
}

TEST(MemoryLimitsTest, ThisMachine) {
  const MemoryLimits limits = read_memory_limits();
  EXPECT_GT(limits.total, 64 * kMiB);
  EXPECT_LE(limits.available, limits.total);
  EXPECT_LT(default_ram_budget(limits), limits.total);
}

}  // namespace
}  // namespace moeflux::test
