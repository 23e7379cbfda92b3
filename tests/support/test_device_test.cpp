#include "support/test_device.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

using test::TestDevice;

std::unique_ptr<TestDevice> device(const test::TestDeviceOptions& options = {}) {
  return std::make_unique<TestDevice>(make_backend({.n_threads = 1}, "cpu"), options);
}

View floats_of(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
  return {&buffer, 0, rows, cols, cols};
}

TEST(TestDeviceDeath, ReadingDeviceMemoryFromTheHostFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto backend = device();
  const auto buffer = backend->allocate(64, MemoryKind::Device, Backing::Touched);
  EXPECT_EQ(buffer->host(), nullptr);
  EXPECT_DEATH(
      {
        const volatile std::byte value = *test::seen_by_host(*buffer);
        static_cast<void>(value);
      },
      "");
}

TEST(TestDevice, ThePinnedMemoryIsReadByBoth) {
  const auto backend = device();
  const auto pinned = backend->allocate(4, MemoryKind::Pinned, Backing::Touched);
  ASSERT_NE(pinned->host(), nullptr);
  const float two = 2;
  backend->upload(std::as_bytes(std::span(&two, 1)), whole(*pinned));
  backend->wait_for_all();
  EXPECT_EQ(*reinterpret_cast<const float*>(pinned->host()), 2.0f);
}

TEST(TestDevice, OperationsRunInOrderAndLate) {
  const auto backend = device({.most_delay_us = 2000});
  const auto x = backend->allocate(16, MemoryKind::Device, Backing::Touched);
  const auto y = backend->allocate(16, MemoryKind::Device, Backing::Touched);
  std::vector<float> values = {1, 2, 3, 4}, result(4);
  backend->upload(std::as_bytes(std::span(values)), whole(*x));
  values.assign(4, 100.0f);  // what was uploaded has been read
  for (int i = 0; i < 50; ++i) backend->add({.x = floats_of(*x, 1, 4), .y = floats_of(*y, 1, 4)});
  backend->download(whole(*y), std::as_writable_bytes(std::span(result)));
  const Mark before = backend->mark();
  backend->clear(whole(*y));
  EXPECT_FALSE(backend->done(backend->mark()));
  backend->wait(before);
  EXPECT_EQ(result, (std::vector<float>{50, 100, 150, 200}));
  backend->download(whole(*y), std::as_writable_bytes(std::span(result)));
  backend->wait_for_all();
  EXPECT_EQ(result, std::vector<float>(4));
}

TEST(TestDevice, AnOperandBeyondItsBufferIsNoticed) {
  const auto backend = device();
  const auto x = backend->allocate(16, MemoryKind::Device, Backing::Touched);
  EXPECT_THROW(backend->add({.x = floats_of(*x, 1, 5), .y = floats_of(*x, 1, 5)}),
               std::out_of_range);
}

}  // namespace
}  // namespace moeflux
