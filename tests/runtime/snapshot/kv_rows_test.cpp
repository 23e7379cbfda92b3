#include "runtime/snapshot/kv_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "runtime/snapshot_support.h"

namespace moeflux {
namespace {

using test::Bytes;

Backend& backend() {
  return test::host_backend();
}

struct Cache {
  KvShape shape;
  std::unique_ptr<Buffer> memory = backend().allocate(shape.bytes(), MemoryKind::Device);
  KvView view() const { return {shape, memory.get()}; }
  std::span<std::byte> bytes() const { return {memory->host(), memory->bytes()}; }
};

Cache cache(KvType type, KvLayout layout) {
  return {{.type = type, .layout = layout, .n_heads = 3, .d = 40, .capacity = 50}};
}

Bytes exported(const KvView& view, std::int64_t first, std::int64_t n) {
  Bytes bytes(kv_rows_bytes(view.shape, n));
  export_kv_rows(backend(), view, first, n, bytes);
  return bytes;
}

void store(const Cache& to, std::span<const float> x, std::int64_t n) {
  test::store_rows(to.view(), x, n);
}

TEST(KvRows, OrderIsPositionHeadValue) {
  std::vector<float> x(50 * 3 * 40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (const KvLayout layout : {KvLayout::Rows, KvLayout::Tiles}) {
    const Cache from = cache(KvType::F32, layout);
    store(from, x, 50);
    const Bytes bytes = exported(from.view(), 7, 30);
    ASSERT_EQ(bytes.size(), 30u * 3 * 40 * 4);
    EXPECT_EQ(std::memcmp(bytes.data(), x.data() + 7 * 3 * 40, bytes.size()), 0);
  }
}

TEST(KvRows, AQ8RowIsItsCodesAndThenItsScales) {
  std::vector<float> x(3 * 40);
  x[40] = 127 * 4;  // head 1, in the first group
  x[79] = -127;     // head 1, in the second
  for (const KvLayout layout : {KvLayout::Rows, KvLayout::Tiles}) {
    const Cache from = cache(KvType::Q8, layout);
    store(from, x, 1);
    const Bytes bytes = exported(from.view(), 0, 1);
    ASSERT_EQ(bytes.size(), 3u * 44);
    EXPECT_EQ(bytes[44], std::byte{127});
    EXPECT_EQ(bytes[44 + 39], std::byte{0x81});
    EXPECT_EQ(test::get_at<std::uint16_t>(bytes, 44 + 40), 0x4080);  // 4
    EXPECT_EQ(test::get_at<std::uint16_t>(bytes, 44 + 42), 0x3F80);  // 1
  }
}

// Every layout gives the same bytes, and takes in those of the other.
TEST(KvRows, BothLayoutsGiveTheSameBytes) {
  test::Random random(3);
  const std::vector<float> x = random.floats(50 * 3 * 40, 5);
  for (const KvType type : kAllKvTypes) {
    const Cache rows = cache(type, KvLayout::Rows), tiles = cache(type, KvLayout::Tiles);
    store(rows, x, 50);
    store(tiles, x, 50);
    for (std::int64_t first = 0; first < 50; first += 3) {
      for (std::int64_t n = 0; n <= 50 - first; n += 7)
        ASSERT_EQ(exported(rows.view(), first, n), exported(tiles.view(), first, n));
    }
    const Cache back = cache(type, KvLayout::Tiles);
    import_kv_rows(backend(), back.view(), 0, 20, exported(rows.view(), 0, 20));
    import_kv_rows(backend(), back.view(), 20, 1, exported(rows.view(), 20, 1));
    import_kv_rows(backend(), back.view(), 21, 29, exported(rows.view(), 21, 29));
    EXPECT_TRUE(std::ranges::equal(back.bytes(), tiles.bytes()));
  }
}

TEST(KvRows, ARangeTouchesNoOtherPosition) {
  for (const KvType type : kAllKvTypes) {
    for (const KvLayout layout : {KvLayout::Rows, KvLayout::Tiles}) {
      const Cache to = cache(type, layout);
      std::ranges::fill(to.bytes(), std::byte{0x55});
      const Bytes ones(kv_rows_bytes(to.shape, 9), std::byte{0x11});
      import_kv_rows(backend(), to.view(), 12, 9, ones);
      EXPECT_EQ(exported(to.view(), 12, 9), ones);
      EXPECT_EQ(exported(to.view(), 0, 12), Bytes(kv_rows_bytes(to.shape, 12), std::byte{0x55}));
      EXPECT_EQ(exported(to.view(), 21, 29), Bytes(kv_rows_bytes(to.shape, 29), std::byte{0x55}));
    }
  }
}

TEST(KvRows, DecodeGivesTheStoredNumbers) {
  test::Random random(4);
  const std::vector<float> x = random.floats(20 * 3 * 40, 5);
  const double tolerance[] = {0, 5.0 / 1024, 5.0 / 128, 5.0 / 126};
  for (const KvType type : kAllKvTypes) {
    const Cache from = cache(type, KvLayout::Tiles);
    store(from, x, 20);
    std::vector<float> out(x.size());
    decode_kv_rows(from.shape, exported(from.view(), 0, 20), out.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(out[i], x[i], tolerance[static_cast<int>(type)]) << kv_type_name(type);
    // What was rounded once is not rounded again, but for q8 whose scales depend on the values.
    if (type == KvType::Q8) continue;
    const Cache again = cache(type, KvLayout::Tiles);
    store(again, out, 20);
    EXPECT_EQ(exported(again.view(), 0, 20), exported(from.view(), 0, 20));
  }
}

}  // namespace
}  // namespace moeflux
