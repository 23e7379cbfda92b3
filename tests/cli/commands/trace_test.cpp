// moeflux trace: record, synth and replay through the program.
#include "experts/trace.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(TraceCommandTest, RecordsAndReplays) {
  const TempDir directory;
  const std::string path = directory.file("t.trace");
  const Outcome record =
      run_moeflux({"trace", "record", "-o", path, "-s", "1", "--no-think", "What is 55 minus 1?"});
  ASSERT_EQ(record.exit_code, 0) << record.err;
  EXPECT_EQ(record.out, "");
  EXPECT_NE(record.err.find("32 tokens"), std::string::npos) << record.err;
  const Trace trace = read_trace(path);
  EXPECT_EQ(trace.n_tokens(), 32);      // 23 of the prompt, 9 of the answer
  EXPECT_EQ(trace.steps().size(), 10);  // the prompt is one pass
  EXPECT_EQ(trace.steps()[0].n_tokens, 23);
  EXPECT_EQ(trace.info().top_k, 8);
  for (std::size_t i = 8; i < trace.n_requests(); ++i) {
    EXPECT_EQ(trace.request(i).experts.size(), 8);
    EXPECT_EQ(trace.request(i).layer, static_cast<int>(i % 8));
  }

  const Outcome replay = run_moeflux({"trace", "replay", path, "--json", "--sizes", "25%,100%",
                                      "--policy", "lru,belady", "--skip", "0"});
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  const Json json = parse_json(replay.out, "stdout");
  ASSERT_EQ(json["results"].size(), 4);
  EXPECT_EQ(json["tokens"], 32);
  EXPECT_EQ(json["results"][0]["policy"], "lru");
  EXPECT_EQ(json["results"][0]["slots"], json["experts"].get<int>() / 4);
  for (const Json& result : json["results"]) {
    EXPECT_EQ(result["hits"].get<std::size_t>() + result["misses"].get<std::size_t>(),
              trace.n_uses());
  }
  EXPECT_GE(json["results"][2]["hit_rate"], json["results"][0]["hit_rate"]);
  EXPECT_EQ(json["results"][1]["misses"], json["results"][3]["misses"]);  // all fit
}

TEST(TraceCommandTest, RecordsTextsInPasses) {
  const TempDir directory;
  const std::string texts = directory.write("texts.json", R"(["One two three.", "Four five."])");
  const std::string path = directory.file("t.trace");
  const Outcome outcome =
      run_moeflux({"trace", "record", "-o", path, "--texts", texts, "--chunk", "1", "-q"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Trace trace = read_trace(path);
  EXPECT_EQ(static_cast<std::int64_t>(trace.steps().size()), trace.n_tokens());
  EXPECT_GE(trace.n_tokens(), 6);
}

TEST(TraceCommandTest, SynthesizesAndPlots) {
  const TempDir directory;
  const std::string path = directory.file("s.trace"), plot = directory.file("s.svg");
  const Outcome synth = run_moeflux({"trace", "synth", "-o", path, "--shape", "4x32x4", "--tokens",
                                     "50", "--record-size", "1M", "-s", "5"});
  ASSERT_EQ(synth.exit_code, 0) << synth.err;
  EXPECT_EQ(read_trace(path).n_requests(), 200);
  const Outcome replay = run_moeflux(
      {"trace", "replay", path, "--plot", plot, "--sizes", "32M,50%,20", "--bandwidth", "1G"});
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  for (const char* part : {"4 layers", "128 experts", "lru ", "frequency ", "learned ", "belady ",
                           "read a token", "tokens/s", "50%"}) {
    EXPECT_NE(replay.out.find(part), std::string::npos) << part << " is not in: " << replay.out;
  }
  const std::string svg = read_text_file(plot);
  EXPECT_EQ(svg.compare(0, 5, "<svg "), 0);
  EXPECT_NE(svg.find(">belady</text>"), std::string::npos);
}

TEST(TraceCommandTest, SaysWhatIsWrong) {
  const TempDir directory;
  const auto expect_failure = [](const std::vector<std::string>& arguments, int code,
                                 const char* part) {
    const Outcome outcome = run_moeflux(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  expect_failure({"trace"}, 2, "record, replay, synth");
  expect_failure({"trace", "rewind"}, 2, "\"rewind\"");
  expect_failure({"trace", "record", "hi"}, 2, "-o FILE");
  expect_failure({"trace", "record", "-o", directory.path(), "hi"}, 2, "is a directory");
  expect_failure({"trace", "replay"}, 2, "one trace file");
  expect_failure({"trace", "synth", "-o", directory.file("t"), "--shape", "4x4x8"}, 1,
                 "no more at a time than there are experts");
  expect_failure({"trace", "replay", "/no/such"}, 1, "/no/such");
  expect_failure({"trace", "replay", directory.write("x", "not a trace, but long enough")}, 1,
                 "not a routing trace");
  expect_failure({"trace", "synth", "-o", directory.file("t"), "--shape", "4x32"}, 2, "--shape");
  const std::string path = directory.file("s.trace");
  ASSERT_EQ(
      run_moeflux({"trace", "synth", "-o", path, "--shape", "2x8x2", "--tokens", "9"}).exit_code,
      0);
  expect_failure({"trace", "replay", path, "--policy", "mru"}, 2, "\"mru\"");
  expect_failure({"trace", "replay", path, "--sizes", "many"}, 2, "--sizes");
  expect_failure({"trace", "replay", path, "--sizes", "0"}, 2, "holds no expert");
  expect_failure({"trace", "replay", path, "--skip", "100%"}, 2, "--skip");
}

}  // namespace
}  // namespace moeflux::test
