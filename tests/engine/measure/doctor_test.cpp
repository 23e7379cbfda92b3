#include "engine/measure/doctor.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A machine with nothing to improve.
DoctorReport good_report() {
  DoctorReport report;
  MachineDescription& machine = report.machine;
  machine.cpu = {.name = "CPU",
                 .features = "avx2",
                 .n_sockets = 1,
                 .n_cores = 8,
                 .n_threads = 16,
                 .n_usable = 16,
                 .quota = 0,
                 .n_nodes = 1,
                 .l3_bytes = 0,
                 .governor = ""};
  machine.kernel.architecture = "x86_64";
  machine.kernel.huge_pages = "madvise";
  machine.memory.total = 64 * kGiB;
  machine.memory.available = 60 * kGiB;
  machine.pressure = MemoryPressure{};
  report.uring = UringStatus::Used;
  StorageDescription storage;
  storage.file_system = "ext4";
  storage.alignment = {4096, 512};
  storage.drive.name = "nvme0n1";
  storage.drive.rotational = false;
  report.storage = {storage};
  ReadSpeed speed;
  speed.bytes = 6'000'000'000;
  speed.seconds = 1;
  report.disk = {{ReaderKind::Uring, 8, speed}, {ReaderKind::Pool, 8, speed}};
  return report;
}

// The only finding.
Finding only(const DoctorReport& report) {
  const std::vector<Finding> found = find_problems(report);
  std::string ids;
  for (const Finding& finding : found) ids += finding.id + " ";
  EXPECT_EQ(found.size(), 1) << ids;
  return found.size() == 1 ? found[0] : Finding{};
}

TEST(FindingsTest, NothingToSayAboutAGoodMachine) {
  EXPECT_TRUE(find_problems(good_report()).empty());
}

TEST(FindingsTest, SaysWhoForbidsUring) {
  DoctorReport report = good_report();
  report.uring = UringStatus::Forbidden;
  report.uring_error = EPERM;
  report.machine.kernel.uring_disabled = 2;
  EXPECT_EQ(only(report).id, "io_uring_sysctl");
  EXPECT_NE(only(report).what.find("kernel.io_uring_disabled = 2"), std::string::npos);
  report.machine.kernel.uring_disabled = 0;
  report.machine.kernel.seccomp = true;
  EXPECT_EQ(only(report).id, "io_uring_seccomp");
  EXPECT_NE(only(report).advice.find("io_uring_setup"), std::string::npos);
  report.uring = UringStatus::NotInKernel;
  report.uring_error = ENOSYS;
  EXPECT_EQ(only(report).id, "io_uring_unavailable");
}

TEST(FindingsTest, Storage) {
  DoctorReport report = good_report();
  StorageDescription& storage = report.storage[0];
  storage.alignment = {};
  EXPECT_EQ(only(report).id, "no_direct_io");
  storage.file_system = "tmpfs";
  EXPECT_EQ(only(report).id, "files_in_memory");
  storage = good_report().storage[0];
  storage.file_system = "nfs";
  EXPECT_EQ(only(report).id, "files_remote");
  storage = good_report().storage[0];
  storage.drive.rotational = true;
  EXPECT_EQ(only(report).id, "hard_disk");
  storage = good_report().storage[0];
  storage.drive.link = "8.0 GT/s x4";
  storage.drive.best_link = "16.0 GT/s x4";
  EXPECT_EQ(only(report).id, "slow_link");
}

TEST(FindingsTest, Speeds) {
  DoctorReport report = good_report();
  for (DiskSpeed& disk : report.disk) disk.speed.bytes = 100'000'000;
  EXPECT_EQ(only(report).id, "slow_disk");
  report.disk[1].speed.bytes = 2'000'000'000;
  EXPECT_EQ(only(report).id, "pool_faster");
  report = good_report();
  report.test_file_bytes = kGiB;
  EXPECT_EQ(only(report).id, "test_file");
}

TEST(FindingsTest, Memory) {
  DoctorReport report = good_report();
  report.machine.memory.cgroup.hard_limit = 8 * kGiB;
  EXPECT_EQ(only(report).id, "cgroup_memory");
  report = good_report();
  report.machine.memory.available = kGiB;
  EXPECT_EQ(only(report).id, "little_memory");
  report = good_report();
  report.machine.memory.address_space_left = 4 * kGiB;
  EXPECT_EQ(only(report).id, "rlimit_memory");
  report = good_report();
  report.machine.pressure->some.avg10 = 30;
  EXPECT_EQ(only(report).id, "memory_pressure");
  report.machine.pressure.reset();
  EXPECT_EQ(only(report).id, "no_psi");
  report = good_report();
  report.machine.kernel.huge_pages = "never";
  EXPECT_EQ(only(report).id, "no_huge_pages");
}

TEST(FindingsTest, ProcessorAndLimits) {
  DoctorReport report = good_report();
  report.machine.cpu.features = "baseline";
  EXPECT_EQ(only(report).id, "no_avx2");
  report = good_report();
  report.machine.cpu.quota = 1.5;
  EXPECT_EQ(only(report).id, "cgroup_cpu");
  report = good_report();
  report.machine.limits.locked_memory = 8u << 20;
  EXPECT_EQ(only(report).id, "locked_memory");
  report = good_report();
  report.machine.limits.open_files = 100;
  report.model = ModelOnDisk{};
  report.model->files.resize(94);
  EXPECT_EQ(only(report).severity, Severity::Error);
}

TEST(FindingsTest, TheWorstComesFirst) {
  DoctorReport report = good_report();
  report.machine.cpu.n_nodes = 2;
  report.machine.kernel.huge_pages = "never";
  report.disk_error = "it is broken";
  const std::vector<Finding> found = find_problems(report);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(severity_name(found[0].severity), "error");
  EXPECT_EQ(severity_name(found[1].severity), "warning");
  EXPECT_EQ(severity_name(found[2].severity), "note");
}

TEST(DoctorTest, MeasuresADirectoryAndLeavesNothingBehind) {
  const TempDir dir;
  std::vector<std::string> steps;
  DoctorOptions options;
  options.path = dir.path();
  options.quick = true;
  options.record_bytes = 256u << 10;
  options.progress = [&](int step, int n_steps, const std::string& what) {
    EXPECT_LE(step, n_steps);
    steps.push_back(what);
  };
  const DoctorReport report = examine(options);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(report.disk_error, "");
  EXPECT_FALSE(report.model);
  EXPECT_EQ(report.model_error, "");
  EXPECT_GT(report.test_file_bytes, 0);
  EXPECT_EQ(report.record_bytes, 256u << 10);
  ASSERT_NE(report.best_disk(), nullptr);
  EXPECT_GT(report.best_disk()->speed.bytes_per_second(), 0);
  ASSERT_FALSE(report.memory.empty());
  EXPECT_GT(report.memory[0].bytes_per_second, 1e7);
  EXPECT_EQ(report.storage.size(), 1);
  EXPECT_GE(steps.size(), report.disk.size() + report.memory.size());
}

TEST(DoctorTest, MeasuresAModelsOwnFiles) {
  DoctorOptions options;
  options.path = source_path("models/demo");
  options.quick = true;
  const DoctorReport report = examine(options);
  ASSERT_TRUE(report.model);
  EXPECT_EQ(report.model->name, "demo");
  EXPECT_EQ(report.test_file_bytes, 0);
  EXPECT_EQ(report.record_bytes, report.model->expert_bytes);
  EXPECT_GT(report.model->files.size(), 0);
  EXPECT_FALSE(report.model->expert_is_one_record);
  EXPECT_FALSE(report.disk.empty());
}

TEST(DoctorTest, AnExpertOfAContainerIsOneRecord) {
  const ModelOnDisk model = inspect_model(source_path("tests/fixtures/container-v1"));
  EXPECT_TRUE(model.expert_is_one_record);
  EXPECT_EQ(model.layout, "container");
}

TEST(DoctorTest, ADamagedModelIsAFindingWithoutItsPath) {
  const TempDir dir;
  dir.write("config.json", "{");
  DoctorOptions options;
  options.path = dir.path();
  options.quick = true;
  const DoctorReport report = examine(options);
  EXPECT_NE(report.model_error, "");
  EXPECT_EQ(report.model_error.find(dir.path()), std::string::npos) << report.model_error;
  EXPECT_EQ(report.findings.at(0).id, "model_unusable");
  EXPECT_FALSE(report.disk.empty());
}

TEST(DoctorTest, ProgressMayStopIt) {
  const TempDir dir;
  DoctorOptions options;
  options.path = dir.path();
  options.progress = [](int step, int, const std::string&) {
    if (step > 0) fail(Errc::Cancelled, "stop");
  };
  expect_error(Errc::Cancelled, {"stop"}, [&] { static_cast<void>(examine(options)); });
}

TEST(DoctorTest, RefusesWhatDoesNotExist) {
  DoctorOptions options;
  options.path = "/nonexistent";
  expect_error(Errc::NotFound, {"/nonexistent"}, [&] { static_cast<void>(examine(options)); });
}

}  // namespace
}  // namespace moeflux::test
