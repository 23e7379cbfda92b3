#include "engine/measure/machine.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace moeflux::test {
namespace {

void write_processor(const FakeRoot& root, int index, const std::string& socket,
                     const std::string& core) {
  const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(index) + "/topology/";
  root.write(topology + "physical_package_id", socket + "\n");
  root.write(topology + "core_id", core + "\n");
}

TEST(MachineTest, CountsCoresThreadsAndSockets) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/online", "0-2,4-5\n");
  root.write("/sys/devices/system/node/online", "0-1\n");
  write_processor(root, 0, "0", "0");
  write_processor(root, 1, "0", "0");  // the other thread of the same core
  write_processor(root, 2, "0", "1");
  write_processor(root, 4, "1", "0");  // 3 is switched off
  write_processor(root, 5, "1", "1");
  const CpuDescription cpu = describe_machine(root.path()).cpu;
  EXPECT_EQ(cpu.n_threads, 5);
  EXPECT_EQ(cpu.n_cores, 4);
  EXPECT_EQ(cpu.n_sockets, 2);
  EXPECT_EQ(cpu.n_nodes, 2);
}

TEST(MachineTest, CacheAndGovernor) {
  const FakeRoot root;
  root.write("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  root.write("/sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
  root.write("/sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
  root.write("/sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n");
  root.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  const CpuDescription cpu = describe_machine(root.path()).cpu;
  EXPECT_EQ(cpu.l3_bytes, 32u << 20);
  EXPECT_EQ(cpu.governor, "powersave");
}

TEST(MachineTest, TheTightestQuotaOfAllGroupsCounts) {
  const FakeRoot root;
  root.unified("/outer/inner");
  root.write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  root.write("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(describe_machine(root.path()).cpu.quota, 1.5);
  root.write("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(describe_machine(root.path()).cpu.quota, 0.5);
}

TEST(MachineTest, QuotaOfVersionOne) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "1:cpu,cpuacct:/\n");
  root.write("/proc/self/mountinfo", "3 1 0:3 / /cg rw - cgroup cgroup rw,cpu,cpuacct\n");
  root.write("/cg/cpu.cfs_quota_us", "-1\n");
  root.write("/cg/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(describe_machine(root.path()).cpu.quota, 0);
  root.write("/cg/cpu.cfs_quota_us", "400000\n");
  EXPECT_DOUBLE_EQ(describe_machine(root.path()).cpu.quota, 4);
}

TEST(MachineTest, KernelAndLimits) {
  const FakeRoot root;
  root.write("/proc/sys/kernel/io_uring_disabled", "2\n");
  root.write("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.write("/proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max open files            1024                 4096                 files     \n"
             "Max locked memory         8388608              unlimited            bytes     \n");
  const MachineDescription machine = describe_machine(root.path());
  EXPECT_EQ(machine.kernel.uring_disabled, 2);
  EXPECT_TRUE(machine.kernel.seccomp);
  EXPECT_EQ(machine.kernel.huge_pages, "madvise");
  EXPECT_EQ(machine.limits.open_files, 1024);
  EXPECT_EQ(machine.limits.locked_memory, 8388608);
  EXPECT_EQ(machine.limits.address_space, kNoLimit);
}

TEST(MachineTest, MalformedFilesSayNothing) {
  const FakeRoot root;
  for (const char* text : {"", "\n", "garbage", "9-1", "1-", "-", "0-99999999999", "[", "]["}) {
    root.write("/sys/devices/system/cpu/online", text);
    root.write("/sys/devices/system/node/online", text);
    root.write("/sys/kernel/mm/transparent_hugepage/enabled", text);
    root.write("/proc/self/limits", text);
    root.unified("/");
    root.write("/sys/fs/cgroup/cpu.max", text);
    const MachineDescription machine = describe_machine(root.path());
    EXPECT_EQ(machine.cpu.n_threads, 0) << text;
    EXPECT_EQ(machine.cpu.n_nodes, 0) << text;
    EXPECT_EQ(machine.cpu.quota, 0) << text;
    EXPECT_EQ(machine.kernel.huge_pages, "") << text;
    EXPECT_EQ(machine.limits.open_files, kNoLimit) << text;
  }
}

TEST(MachineTest, ThisMachine) {
  const MachineDescription machine = describe_machine();
  EXPECT_GE(machine.cpu.n_usable, 1);
  EXPECT_GE(machine.cpu.n_threads, machine.cpu.n_cores);
  EXPECT_FALSE(machine.kernel.release.empty());
  EXPECT_GT(machine.memory.total, 0);
}

}  // namespace
}  // namespace moeflux::test
