#include "engine/measure/storage.h"

#include <filesystem>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/fake_root.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

// A drive in /sys/devices with its link in /sys/dev/block.
void add_device(const FakeRoot& root, const std::string& number, const std::string& place) {
  root.make_directory(place);
  root.make_directory("/sys/dev/block");
  fs::create_symlink(root.path() + place, root.path() + "/sys/dev/block/" + number);
}

TEST(StorageTest, DescribesThePartitionsDrive) {
  const FakeRoot root;
  const std::string drive = "/sys/devices/pci0/nvme/nvme0/nvme0n1";
  add_device(root, "259:2", drive + "/nvme0n1p2");
  root.write(drive + "/nvme0n1p2/partition", "2\n");
  root.write(drive + "/queue/rotational", "0\n");
  root.write(drive + "/queue/max_sectors_kb", "1280\n");
  root.write("/sys/devices/pci0/nvme/nvme0/model", "Fast Drive 2000      \n");
  root.write("/sys/devices/pci0/current_link_speed", "8.0 GT/s PCIe\n");
  root.write("/sys/devices/pci0/current_link_width", "4\n");
  root.write("/sys/devices/pci0/max_link_speed", "16.0 GT/s PCIe\n");
  root.write("/sys/devices/pci0/max_link_width", "4\n");
  fs::create_symlink(root.path() + "/sys/devices/pci0/nvme/nvme0", root.path() + drive + "/device");
  fs::create_symlink(root.path() + "/sys/devices/pci0",
                     root.path() + "/sys/devices/pci0/nvme/nvme0/device");
  const DriveDescription found = describe_drive(259, 2, root.path());
  EXPECT_EQ(found.name, "nvme0n1");
  EXPECT_EQ(found.model, "Fast Drive 2000");
  EXPECT_EQ(found.rotational, false);
  EXPECT_EQ(found.max_request_bytes, 1280 * 1024);
  EXPECT_EQ(found.link, "8.0 GT/s x4");
  EXPECT_EQ(found.best_link, "16.0 GT/s x4");
}

TEST(StorageTest, LooksBelowMappedDrives) {
  const FakeRoot root;
  root.make_directory("/sys/devices/virtual/block/dm-0/slaves");
  add_device(root, "254:0", "/sys/devices/virtual/block/dm-0");
  root.write("/sys/devices/ata/sda/queue/rotational", "1\n");
  fs::create_symlink(root.path() + "/sys/devices/ata/sda",
                     root.path() + "/sys/devices/virtual/block/dm-0/slaves/sda");
  const DriveDescription found = describe_drive(254, 0, root.path());
  EXPECT_EQ(found.name, "sda");
  EXPECT_EQ(found.rotational, true);
}

TEST(StorageTest, LoopsOfMappedDrivesEnd) {
  const FakeRoot root;
  add_device(root, "254:0", "/sys/devices/dm-0");
  root.make_directory("/sys/devices/dm-0/slaves");
  fs::create_symlink(root.path() + "/sys/devices/dm-0",
                     root.path() + "/sys/devices/dm-0/slaves/dm-0");
  EXPECT_EQ(describe_drive(254, 0, root.path()).name, "dm-0");
}

TEST(StorageTest, VirtualDrivesDoNotKnowWhetherTheyRotate) {
  const FakeRoot root;
  add_device(root, "253:0", "/sys/devices/virtio/vda");
  root.write("/sys/devices/virtio/vda/queue/rotational", "1\n");
  EXPECT_EQ(describe_drive(253, 0, root.path()).name, "vda");
  EXPECT_FALSE(describe_drive(253, 0, root.path()).rotational);
}

TEST(StorageTest, UnknownDriveIsEmpty) {
  const FakeRoot root;
  EXPECT_EQ(describe_drive(1, 2, root.path()).name, "");
  EXPECT_FALSE(describe_drive(1, 2, root.path()).rotational);
}

TEST(StorageTest, FileSystems) {
  EXPECT_EQ(file_system_name(0xEF53), "ext4");
  EXPECT_EQ(file_system_name(0x01021994), "tmpfs");
  EXPECT_EQ(file_system_name(0x12345), "");
}

TEST(StorageTest, ThisMachine) {
  const TempDir dir;
  const std::string file = dir.write("file", std::string(8192, 'x'));
  EXPECT_GT(describe_storage(file).free_bytes, 0);
  const FileAlignment alignment = describe_storage(file).alignment;
  EXPECT_GE(alignment.offset, alignment.memory);
  EXPECT_EQ(describe_storage(dir.path()).alignment.offset, 1);
  EXPECT_EQ(describe_storage(dir.file("none")).free_bytes, 0);
}

TEST(TestFileTest, HasNoNameAndHoldsDifferentBytes) {
  const TempDir dir;
  const TestFile test(dir.path(), {.bytes = 8u << 20});
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(test.bytes(), 8u << 20);
  const File file(test.path());
  EXPECT_EQ(file.size(), 8u << 20);
  std::set<std::string> blocks;
  for (std::uint64_t offset = 0; offset < file.size(); offset += 1u << 20) {
    std::string block(4096, '\0');
    file.read(offset, std::as_writable_bytes(std::span(block)));
    blocks.insert(std::move(block));
  }
  EXPECT_EQ(blocks.size(), 8);
}

TEST(TestFileTest, StopsWhenTimeIsUp) {
  const TempDir dir;
  const TestFile test(dir.path(), {.bytes = 1u << 30, .max_seconds = 0});
  EXPECT_EQ(test.bytes(), 4u << 20);
}

TEST(TestFileTest, ProgressMayGiveUp) {
  const TempDir dir;
  const auto give_up = [](std::uint64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(TestFile(dir.path(), {.progress = give_up}), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(TestFileTest, NamesTheDirectoryThatRefuses) {
  expect_error(Errc::Io, {"/nonexistent/place"},
               [&] { static_cast<void>(TestFile("/nonexistent/place", {})); });
}

}  // namespace
}  // namespace moeflux::test
