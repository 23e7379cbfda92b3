// What a conversion refuses, and that it then leaves everything as it was.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/directory_bytes.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::directory_bytes;
using test::expect_error;
using test::fixture_path;

class ConvertErrors : public testing::Test {
 protected:
  const std::string from_ = fixture_path("qwen-onekv");
  test::TempDir dir_;
  std::string to_ = dir_.file("out");
};

TEST_F(ConvertErrors, SourcesThatAreNone) {
  expect_error(Errc::NotFound, {"/no/such/model"}, [&] { convert("/no/such/model", to_, {}); });
  EXPECT_FALSE(fs::exists(to_));
}

TEST_F(ConvertErrors, AnotherCheckpointInTheTarget) {
  fs::copy(from_, to_);
  const auto before = directory_bytes(to_);
  ConvertOptions force;
  force.force = true;
  for (const ConvertOptions& options : {ConvertOptions(), force}) {
    expect_error(Errc::BadInput, {to_, "checkpoint of another layout"},
                 [&] { convert(fixture_path("dsv3-kimi"), to_, options); });
    expect_error(Errc::BadInput, {to_}, [&] { convert(to_, to_, options); });
  }
  EXPECT_EQ(directory_bytes(to_), before);
}

TEST_F(ConvertErrors, TheSourceItselfAsTarget) {
  convert(from_, to_, {});
  const auto before = directory_bytes(to_);
  ConvertOptions force;
  force.force = true;
  expect_error(Errc::BadInput, {to_, "is the model to convert"}, [&] { convert(to_, to_, force); });
  fs::create_directory_symlink(to_, dir_.file("link"));
  expect_error(Errc::BadInput, {"is the model to convert"},
               [&] { convert(to_, dir_.file("link"), force); });
  // A path that is the source only once a directory on its way has been made.
  expect_error(Errc::BadInput, {"is the model to convert"},
               [&] { convert(to_, dir_.file("new/../out"), force); });
  EXPECT_FALSE(fs::exists(dir_.file("new")));
  // Its files as stripes of the new one.
  force.stripes = {{to_, 1}};
  expect_error(Errc::BadInput, {"belongs to the model to convert"},
               [&] { convert(to_, dir_.file("other"), force); });
  EXPECT_EQ(directory_bytes(to_), before);
}

TEST_F(ConvertErrors, ACompleteContainerIsNotReplacedUnasked) {
  convert(from_, to_, {});
  const auto before = directory_bytes(to_);
  expect_error(Errc::BadInput, {"holds a container already", "--force"},
               [&] { convert(fixture_path("dsv3-kimi"), to_, {}); });
  EXPECT_EQ(directory_bytes(to_), before);
  ConvertOptions force;
  force.force = true;
  convert(fixture_path("dsv3-kimi"), to_, force);
  EXPECT_EQ(describe_model(*open_source(to_)).config.family, "deepseek_v3");
}

TEST_F(ConvertErrors, WithoutRoomTheOldContainerStays) {
  convert(from_, to_, {});
  const auto before = directory_bytes(to_);
  ConvertOptions force;
  force.force = true;
  force.free = [](const std::string&) { return std::uint64_t{1} << 20; };
  expect_error(Errc::Io, {"are free"}, [&] { convert(fixture_path("dsv3-kimi"), to_, force); });
  EXPECT_EQ(directory_bytes(to_), before);
}

TEST_F(ConvertErrors, StripesOfAnotherContainerAreNotReplaced) {
  ConvertOptions striped;
  striped.stripes = {{dir_.file("a"), 1}, {dir_.file("b"), 1}};
  convert(from_, to_, striped);
  const auto before = directory_bytes(dir_.file("a"));
  const std::string other = dir_.file("other");
  convert(from_, other, {});
  striped.force = true;
  expect_error(Errc::BadInput, {dir_.file("a"), "does not belong to", other},
               [&] { convert(from_, other, striped); });
  EXPECT_EQ(directory_bytes(dir_.file("a")), before);
  EXPECT_TRUE(fs::exists(other + "/moeflux.json"));
  // Nor by a conversion that was only begun.
  fs::remove(other + "/moeflux.json");
  std::ofstream(other + "/convert.progress") << "";
  expect_error(Errc::BadInput, {dir_.file("a")}, [&] { convert(from_, other, striped); });
  EXPECT_EQ(directory_bytes(dir_.file("a")), before);
  convert(from_, to_, striped);  // its own
  EXPECT_EQ(directory_bytes(dir_.file("a")), before);
}

TEST_F(ConvertErrors, StripesThatWereBegunStartOver) {
  for (const std::string& place : {dir_.file("s"), to_ + "/inside"}) {
    ConvertOptions options;
    options.stripes = {{place, 1}};
    ConvertOptions stop = options;
    stop.checkpoint_bytes = 1;
    stop.progress = [](const ConvertProgress& p) {
      if (p.bytes_done > p.bytes_total / 2) fail(Errc::Cancelled, "stop");
    };
    stop.force = true;
    EXPECT_THROW(convert(from_, to_, stop), Error);
    EXPECT_FALSE(fs::is_empty(place));
    options.force = true;
    EXPECT_EQ(convert(from_, to_, options).resumed_bytes, 0u);
  }
}

TEST_F(ConvertErrors, OtherOptionsDoNotResume) {
  ConvertOptions stop;
  stop.checkpoint_bytes = 1;
  stop.progress = [](const ConvertProgress& p) {
    if (p.bytes_done > p.bytes_total / 2) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(from_, to_, stop), Error);
  expect_error(Errc::NotFound, {to_, "has not ended", "resume"}, [&] { open_source(to_); });
  ConvertOptions other;
  other.stripes = {{dir_.file("s"), 1}};
  expect_error(Errc::BadInput, {"other options", "--force"}, [&] { convert(from_, to_, other); });
  expect_error(Errc::BadInput, {"another source", "--force"},
               [&] { convert(fixture_path("dsv3-kimi"), to_, {}); });
  EXPECT_GT(convert(from_, to_, {}).resumed_bytes, 0u);
}

TEST_F(ConvertErrors, ASourceThatChangedDoesNotResume) {
  fs::copy(from_, dir_.file("model"));
  ConvertOptions stop;
  stop.checkpoint_bytes = 1;
  stop.progress = [](const ConvertProgress& p) {
    if (p.bytes_done > 0) fail(Errc::Cancelled, "stop");
  };
  EXPECT_THROW(convert(dir_.file("model"), to_, stop), Error);
  fs::last_write_time(dir_.file("model/model.safetensors"), fs::file_time_type::clock::now());
  expect_error(Errc::BadInput, {"another source"}, [&] { convert(dir_.file("model"), to_, {}); });
}

TEST_F(ConvertErrors, Stripes) {
  ConvertOptions options;
  options.stripes = {{dir_.file("a"), 1}, {dir_.file("b/../a"), 1}};
  expect_error(Errc::BadInput, {"twice"}, [&] { convert(from_, to_, options); });
  options.stripes = {{dir_.file("a"), 1}, {dir_.file("b"), 0}};
  expect_error(Errc::BadInput, {"for all stripes"}, [&] { convert(from_, to_, options); });
  options.stripes = {{dir_.file("a"), -1}};
  expect_error(Errc::BadInput, {"positive"}, [&] { convert(from_, to_, options); });
}

TEST_F(ConvertErrors, TooLittleSpaceSaysTheNumbers) {
  ConvertOptions options;
  options.free = [](const std::string&) { return std::uint64_t{5 << 20}; };
  expect_error(Errc::Io, {to_, "more here", "5.0 MiB are free"},
               [&] { convert(from_, to_, options); });
  EXPECT_THROW(open_source(to_), Error);
  convert(from_, to_, {});  // the same command, once there is room
}

}  // namespace
}  // namespace moeflux
