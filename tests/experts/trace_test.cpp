#include "experts/trace.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "source/checksum.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

Trace small_trace() {
  Trace trace({"a model", 2, {{4, 4096}, {300, 8192}}});
  trace.on_step(1);
  trace.on_request(0, std::vector<int>{3, 1});
  trace.on_request(1, std::vector<int>{299, 0, 128});
  trace.on_step(70000);
  trace.on_request(1, std::vector<int>{127});
  return trace;
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.info().model, b.info().model);
  EXPECT_EQ(a.info().top_k, b.info().top_k);
  ASSERT_EQ(a.info().layers.size(), b.info().layers.size());
  for (std::size_t i = 0; i < a.info().layers.size(); ++i) {
    EXPECT_EQ(a.info().layers[i].n_experts, b.info().layers[i].n_experts);
    EXPECT_EQ(a.info().layers[i].record_bytes, b.info().layers[i].record_bytes);
  }
  EXPECT_EQ(a.n_tokens(), b.n_tokens());
  ASSERT_EQ(a.steps().size(), b.steps().size());
  for (std::size_t i = 0; i < a.steps().size(); ++i) {
    EXPECT_EQ(a.steps()[i].n_tokens, b.steps()[i].n_tokens);
    EXPECT_EQ(a.steps()[i].n_requests, b.steps()[i].n_requests);
  }
  ASSERT_EQ(a.n_requests(), b.n_requests());
  for (std::size_t i = 0; i < a.n_requests(); ++i) {
    const Trace::Request x = a.request(i), y = b.request(i);
    EXPECT_EQ(x.layer, y.layer);
    EXPECT_EQ(std::vector<int>(x.experts.begin(), x.experts.end()),
              std::vector<int>(y.experts.begin(), y.experts.end()));
  }
}

// A file whose checksum is right, whatever is in it.
std::string sealed(std::string bytes) {
  std::uint64_t sum = checksum(bytes);
  for (int i = 0; i < 8; ++i, sum >>= 8) bytes.push_back(static_cast<char>(sum & 0xff));
  return bytes;
}

std::string with_records(const std::string& header, const std::string& records) {
  std::string bytes("MFXTRACE\1\0\0\0", 12);
  for (int i = 0; i < 4; ++i) {
    bytes.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  }
  return sealed(bytes + header + records);
}

constexpr const char* kHeader =
    R"({"model":"m","top_k":1,"layers":[{"n_experts":200,"record_bytes":1}]})";

TEST(TraceTest, NumbersExpertsThrough) {
  const Trace trace = small_trace();
  EXPECT_EQ(trace.n_tokens(), 70001);
  EXPECT_EQ(trace.n_uses(), 6);
  EXPECT_EQ(trace.request(1).experts[0], 4 + 299);
  EXPECT_EQ(trace.expert_ids().layer(4 + 299), 1);
  EXPECT_EQ(trace.expert_ids().expert(4 + 299), 299);
}

TEST(TraceTest, ReadsWhatItWrote) {
  const TempDir directory;
  const std::string path = directory.file("t.trace");
  write_trace(path, small_trace());
  expect_same(read_trace(path), small_trace());
  EXPECT_FALSE(file_exists(path + ".part"));
}

TEST(TraceTest, WrittenByHandFromTheDescription) {
  const TempDir directory;
  // A step of 1 token; layer 0 asks for experts 5 and 199.
  const std::string records("\x01\x01\x02\x02\x05\xc7\x01\x00", 8);
  const Trace trace = read_trace(directory.write("t", with_records(kHeader, records)));
  ASSERT_EQ(trace.n_requests(), 1);
  EXPECT_EQ(trace.request(0).experts[0], 5);
  EXPECT_EQ(trace.request(0).experts[1], 199);
}

TEST(TraceTest, AppearsOnlyWhenFinished) {
  const TempDir directory;
  const std::string path = directory.file("t.trace");
  {
    TraceWriter writer(path, small_trace().info());
    writer.on_step(1);
    EXPECT_FALSE(file_exists(path));
  }
  EXPECT_FALSE(file_exists(path));
  EXPECT_FALSE(file_exists(path + ".part"));
  TraceWriter writer(path, small_trace().info());
  writer.finish();
  EXPECT_EQ(read_trace(path).n_requests(), 0);
}

TEST(TraceTest, RefusesEveryCutAndEveryFlippedBit) {
  const TempDir directory;
  const std::string path = directory.file("t.trace");
  write_trace(path, small_trace());
  const std::string good = read_text_file(path);
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW(read_trace(directory.write("cut", good.substr(0, n))), Error) << n;
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    EXPECT_THROW(read_trace(directory.write("flipped", bad)), Error) << i;
  }
}

TEST(TraceTest, RefusesNonsenseWithTheRightChecksum) {
  const TempDir directory;
  const auto read = [&](const std::string& header, const std::string& records) {
    return
        [&, header, records] { read_trace(directory.write("bad", with_records(header, records))); };
  };
  using std::string_literals::operator""s;
  expect_error(Errc::BadInput, {"bad", "before the first step"}, read(kHeader, "\2\1\5\0"s));
  expect_error(Errc::BadInput, {"no tokens"}, read(kHeader, "\1\0\0"s));
  expect_error(Errc::BadInput, {"layer"}, read(kHeader, "\1\1\3\1\5\0"s));
  expect_error(Errc::BadInput, {"without experts"}, read(kHeader, "\1\1\2\0\0"s));
  expect_error(Errc::BadInput, {"twice"}, read(kHeader, "\1\1\2\2\5\5\0"s));
  expect_error(Errc::BadInput, {"an expert is 200"}, read(kHeader, "\1\1\2\1\xc8\1\0"s));
  expect_error(Errc::BadInput, {"end early"}, read(kHeader, "\1\1\2\2\5"s));
  expect_error(Errc::BadInput, {"more after the end"}, read(kHeader, "\1\1\0\0"s));
  expect_error(Errc::BadInput, {"too many digits"}, read(kHeader, "\1\xff\xff\xff\xff\xff\xff\1"s));
  expect_error(Errc::BadInput, {"layers"}, read(R"({"top_k":1,"layers":[]})", "\0"s));
  expect_error(Errc::BadInput, {"top_k"}, read(R"({"layers":[{}]})", "\0"s));
  expect_error(Errc::BadInput, {"n_experts"},
               read(R"({"top_k":1,"layers":[{"n_experts":0,"record_bytes":1}]})", "\0"s));
  expect_error(Errc::BadInput, {"not a routing trace"},
               [&] { read_trace(directory.write("bad", std::string(64, 'x'))); });
  std::string newer = with_records(kHeader, "\0"s);
  newer[8] = 2;
  expect_error(Errc::Unsupported, {"version 2", "version 1"},
               [&] { read_trace(directory.write("bad", newer)); });
}

TEST(TraceTest, SurvivesRandomRecords) {
  const TempDir directory;
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    std::string records;
    for (std::int64_t i = random.integer(0, 30); i > 0; --i) {
      records.push_back(static_cast<char>(random.integer(0, 3)));
    }
    try {
      read_trace(directory.write("random", with_records(kHeader, records)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::BadInput);
    }
  }
}

}  // namespace
}  // namespace moeflux::test
