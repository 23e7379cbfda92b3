// Pulling from a hub that behaves, and from one that does not.
#include "hub/pull.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "hub/hub_fixture.h"
#include "source/hub_cache.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(HubTest, AModelLiesInTheCacheAsTheHubsToolsPutIt) {
  const PullReport report = pull();
  expect_whole();
  EXPECT_EQ(report.path, snapshot());
  EXPECT_EQ(report.plan.commit, server_.commit(kModel));
  EXPECT_EQ(report.fetched_bytes, wanted_bytes());
  EXPECT_EQ(server_.bytes_sent(), wanted_bytes());
  const std::string config = files_["config.json"];
  EXPECT_EQ(fs::read_symlink(snapshot() + "/config.json"), "../../blobs/" + git_hash_of(config));
  const std::string large = "model-00002-of-00002.safetensors";
  EXPECT_EQ(fs::read_symlink(snapshot() + "/" + large), "../../blobs/" + sha256_of(files_[large]));
  EXPECT_EQ(find_in_hub_cache(cache(), "maker/model"), snapshot());
  EXPECT_EQ(find_in_hub_cache(cache(), "models--maker--model"), snapshot());
  EXPECT_EQ(find_in_hub_cache(cache(), "maker/model@" + server_.commit(kModel)), snapshot());
  EXPECT_EQ(find_in_hub_cache(cache(), "maker/model@other"), std::nullopt);
}

TEST_F(HubTest, NothingIsFetchedTwice) {
  pull();
  server_.forget();
  const PullReport again = pull();
  EXPECT_EQ(again.fetched_bytes, 0u);
  EXPECT_EQ(again.plan.present_bytes, wanted_bytes());
  EXPECT_EQ(server_.requests().size(), 1u);  // the listing

  // A new commit shares what has not changed.
  add("config.json", "{\"model_type\": \"other\"}", false);
  server_.forget();
  pull();
  expect_whole();
  EXPECT_EQ(server_.bytes_sent(), files_["config.json"].size());
}

TEST_F(HubTest, FilesInFoldersAndOddNames) {
  add("a b/ü%2F+x.jinja", "one", false);
  add("deep/er/still/y.jinja", "two", false);
  pull();
  expect_whole();
  EXPECT_EQ(fs::read_symlink(snapshot() + "/deep/er/still/y.jinja"),
            "../../../../../blobs/" + git_hash_of("two"));
}

TEST_F(HubTest, LinesThatAreCutCostNothing) {
  server_.set({.cut_chance = 0.7});
  PullOptions with = options();
  with.client.retry.most_failures = 100;
  const PullReport report = pull(with);
  expect_whole();
  EXPECT_GT(server_.n_cuts(), 20);
  EXPECT_EQ(server_.bytes_sent(), wanted_bytes());
  EXPECT_EQ(report.fetched_bytes, wanted_bytes());
}

TEST_F(HubTest, AServerWithoutRanges) {
  server_.set({.knows_ranges = false});
  pull();
  expect_whole();
}

TEST_F(HubTest, AServerWithoutRangesThatCutsLines) {
  server_.set({.cut_chance = 0.5, .knows_ranges = false});
  PullOptions with = options();
  with.client.retry.most_failures = 100;
  pull(with);
  expect_whole();
}

TEST_F(HubTest, AServerWithoutLengths) {
  server_.set({.sends_lengths = false});
  pull();
  expect_whole();
}

TEST_F(HubTest, AListingWithoutSizesIsCompletedByTheFiles) {
  server_.set({.lists_sizes = false});
  pull();
  expect_whole();
}

TEST_F(HubTest, LargeFilesOfAnotherHostComeWithoutTheToken) {
  HubServer store;
  for (const auto& [path, content] : files_) store.add("x", path, {content, true});
  server_.set({.lfs_host = store.url(), .token = "hf_secret"});
  PullOptions with = options();
  with.client.settings.token = "hf_secret";
  pull(with);
  expect_whole();
  ASSERT_GT(store.requests().size(), 2u);
  for (const SeenRequest& each : store.requests()) {
    EXPECT_EQ(each.headers.count("authorization"), 0u) << each.target;
  }
  for (const SeenRequest& each : server_.requests())
    EXPECT_EQ(each.headers.at("authorization"), "Bearer hf_secret") << each.target;
  // Where a file's redirect led is remembered.
  const std::vector<SeenRequest> seen = server_.requests();
  const auto n_redirects = std::count_if(seen.begin(), seen.end(), [](const SeenRequest& each) {
    return each.target.find(".safetensors") != std::string::npos;
  });
  EXPECT_LT(n_redirects, 44 / 2);
}

TEST_F(HubTest, AnotherNameOfTheSameMachineIsAnotherHost) {
  server_.set({.lfs_host = server_.url("localhost"), .token = "hf_secret"});
  PullOptions with = options();
  with.client.settings.token = "hf_secret";
  pull(with);
  for (const SeenRequest& each : server_.requests()) {
    EXPECT_EQ(each.headers.count("authorization"), each.target.starts_with("/blob/") ? 0u : 1u);
  }
}

TEST_F(HubTest, ASignedAddressThatHasRunOutIsAskedForAgain) {
  HubServer store;
  for (const auto& [path, content] : files_) store.add("x", path, {content, true});
  store.set({.script = [](const SeenRequest&, int n_before) -> std::string {
    if (n_before % 3 != 2) return "";
    return "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
  }});
  server_.set({.lfs_host = store.url()});
  pull();
  expect_whole();
}

TEST_F(HubTest, WaitsAsLongAsItIsAskedTo) {
  server_.set({.script = [](const SeenRequest& request, int n_before) -> std::string {
    if (request.target.find("config.json") == std::string::npos || n_before > 0) return "";
    return "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
  }});
  std::vector<std::string> notes;
  PullOptions with = options();
  with.client.note = [&](const std::string& text) { notes.push_back(text); };
  const auto start = std::chrono::steady_clock::now();
  pull(with);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 1s);
  expect_whole();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("429"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("trying again in 1 s"), std::string::npos) << notes[0];
}

TEST_F(HubTest, ErrorsOfTheServerPass) {
  server_.set({.script = [](const SeenRequest&, int n_before) -> std::string {
    if (n_before > 1) return "";
    return "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
  }});
  pull();
  expect_whole();
}

TEST_F(HubTest, WhatWasBegunGoesOn) {
  server_.set({.bytes_per_second = 2'000'000});
  PullOptions with = options();
  with.progress = [](const TransferState& state) {
    if (state.fetched > 1'000'000) fail(Errc::Cancelled, "interrupted");
  };
  expect_error(Errc::Cancelled, {"interrupted"}, [&] { pull(with); });
  expect_nothing_linked();
  server_.set({});
  const std::uint64_t before = server_.bytes_sent();
  std::uint64_t first_done = UINT64_MAX;
  with.progress = [&](const TransferState& state) {
    first_done = std::min(first_done, state.done);
  };
  const PullReport report = pull(with);
  expect_whole();
  EXPECT_GT(first_done, 900'000u);  // what was there counts from the start
  EXPECT_LT(report.fetched_bytes, wanted_bytes() - 900'000);
  // What was on the way when it stopped: at most what the buffers of a connection hold.
  EXPECT_LT(before + report.fetched_bytes, wanted_bytes() + 4 * 300'000);
}

TEST_F(HubTest, DamagedBytesOfAnEarlierRunAreFetchedAgain) {
  PullOptions with = options();
  server_.set({.bytes_per_second = 2'000'000});
  with.progress = [](const TransferState& state) {
    if (state.fetched > 1'500'000) fail(Errc::Cancelled, "interrupted");
  };
  expect_error(Errc::Cancelled, {}, [&] { pull(with); });
  const std::string part =
      folder() + "/blobs/" + sha256_of(files_["model-00001-of-00002.safetensors"]) + ".part";
  ASSERT_TRUE(fs::exists(part));
  std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(10);
  file.write("damaged", 7);
  file.close();
  server_.set({});
  pull();
  expect_whole();
}

TEST_F(HubTest, AnotherProcessIsWaitedFor) {
  fs::create_directories(cache() + "/.locks/models--maker--model");
  const std::string hash = sha256_of(files_["model-00002-of-00002.safetensors"]);
  const std::string path = cache() + "/.locks/models--maker--model/" + hash + ".lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  std::string waited;
  PullOptions with = options();
  with.progress = [&](const TransferState& state) {
    if (state.waiting.empty() || state.done < 3'000'000 || !waited.empty()) return;
    waited = state.waiting;
    // It was the other one that fetched it.
    std::ofstream(folder() + "/blobs/" + hash) << files_["model-00002-of-00002.safetensors"];
    ::close(fd);
  };
  const PullReport report = pull(with);
  expect_whole();
  EXPECT_EQ(waited, "model-00002-of-00002.safetensors");
  EXPECT_EQ(report.fetched_bytes, wanted_bytes() - 1'234'567);
}

TEST_F(HubTest, TwoPullsOfTheSameModelShareTheWork) {
  server_.set({.bytes_per_second = 3'000'000});
  std::thread other([&] { pull(); });
  pull();
  other.join();
  expect_whole();
  EXPECT_EQ(server_.bytes_sent(), wanted_bytes());
}

TEST_F(HubTest, RoomIsLookedForFirst) {
  PullOptions with = options();
  with.free = [](const std::string&) { return std::uint64_t{65u << 20}; };
  expect_error(Errc::Io, {"4.1 MiB are to be fetched", "65.0 MiB are free", "HF_HUB_CACHE"},
               [&] { pull(with); });
  EXPECT_EQ(server_.bytes_sent(), 0u);
  with.free = [](const std::string&) { return std::uint64_t{80u << 20}; };
  pull(with);
  expect_whole();
}

TEST_F(HubTest, ARevisionByItsName) {
  server_.set({.wanted_revision = "refs/pr/1"});
  pull_model({.name = kModel, .revision = "refs/pr/1", .tag = {}, .file = {}}, {}, options());
  EXPECT_EQ(bytes_of_file(folder() + "/refs/refs/pr/1"), server_.commit(kModel));
  EXPECT_EQ(find_in_hub_cache(cache(), "maker/model@refs/pr/1"), snapshot());
  // Without main the newest there is will do.
  EXPECT_EQ(find_in_hub_cache(cache(), "maker/model"), snapshot());
}

TEST_F(HubTest, AFileOfAnAddress) {
  const TempDir to;
  const std::string bytes = random_bytes(2'500'000, 9);
  server_.add("any/repo", "x-Q4_K_M.gguf", {bytes, true});
  const Url url = parse_url(server_.url() + "/any/repo/resolve/main/x-Q4_K_M.gguf?download=true");
  server_.set({.cut_chance = 0.5});
  const PullReport report = pull_address(url, to.path(), sha256_of(bytes), options());
  EXPECT_EQ(report.path, to.file("x-Q4_K_M.gguf"));
  EXPECT_TRUE(bytes_of_file(report.path) == bytes);
  EXPECT_EQ(server_.bytes_sent(), bytes.size());
  EXPECT_EQ(std::distance(fs::directory_iterator(to.path()), {}), 1);
  EXPECT_EQ(pull_address(url, to.path(), "", options()).fetched_bytes, 0u);

  const TempDir other;
  expect_error(Errc::BadInput, {"x-Q4_K_M.gguf", "hash", "should be"},
               [&] { pull_address(url, other.path(), std::string(64, '0'), options()); });
  EXPECT_FALSE(fs::exists(other.file("x-Q4_K_M.gguf")));
  expect_error(Errc::BadInput, {"no .gguf file"}, [&] {
    pull_address(parse_url(server_.url() + "/a/b/resolve/main/config.json"), to.path(), "",
                 options());
  });
}

}  // namespace
}  // namespace moeflux::test
