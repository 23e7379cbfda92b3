#include "cli/client/sse_reader.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux::test {
namespace {

using cli::SseEvent;
using cli::SseReader;

// "name|data" of every event.
std::vector<std::string> read(const std::vector<std::string>& pieces) {
  std::vector<std::string> found;
  SseReader reader([&](const SseEvent& event) { found.push_back(event.name + "|" + event.data); });
  for (const std::string& piece : pieces) reader.feed(piece);
  reader.finish();
  return found;
}

using Events = std::vector<std::string>;

TEST(SseReader, ReadsEveryKindOfLine) {
  EXPECT_EQ(read({"data: one\n\n"}), Events{"|one"});
  EXPECT_EQ(read({"data:one\r\n\r\n"}), Events{"|one"});
  EXPECT_EQ(read({"data: one\r\rdata:  two\r\r"}), (Events{"|one", "| two"}));
  EXPECT_EQ(read({": ping\n\ndata: a\ndata: b\n\n"}), Events{"|a\nb"});
  EXPECT_EQ(read({"event: error\nid: 7\nretry: 3\ndata: x\n\ndata: y\n\n"}),
            (Events{"error|x", "|y"}));
  EXPECT_EQ(read({"data\n\n"}), Events{"|"});
  EXPECT_EQ(read({"event: lonely\n\n"}), Events{});
  EXPECT_EQ(read({"\xEF\xBB\xBF"
                  "data: after a mark\n\n"}),
            Events{"|after a mark"});
  EXPECT_EQ(read({"error: {\"code\":500}\n\n"}), Events{"error|{\"code\":500}"});
}

TEST(SseReader, CutsDoNotMatter) {
  const std::string text =
      "\xEF\xBB\xBF: ping\r\n\r\nevent: a\r\ndata: caf\xC3\xA9\r\ndata: two\r\n\r\ndata: x\n\n"
      ":\n\ndata: [DONE]\r\r";
  const Events wanted{"a|caf\xC3\xA9\ntwo", "|x", "|[DONE]"};
  std::vector<std::string> bytes;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(read({text.substr(0, i), text.substr(i)}), wanted) << "cut at " << i;
    if (i < text.size()) bytes.push_back(text.substr(i, 1));
  }
  EXPECT_EQ(read(bytes), wanted);
}

TEST(SseReader, TheEndOfTheStream) {
  EXPECT_EQ(read({"data: [DONE]\n"}), Events{"|[DONE]"});
  EXPECT_EQ(read({"data: one\n\ndata: hal"}), Events{"|one"});
  EXPECT_EQ(read({"data: one\ndata: hal"}), Events{"|one"});
}

TEST(SseReader, RefusesEndlessEvents) {
  const std::string piece(1 << 20, 'x');
  SseReader line([](const SseEvent&) {});
  line.feed("data: ");
  expect_error(Errc::LimitExceeded, {"more than 16 MiB"}, [&] {
    for (int i = 0; i < 17; ++i) line.feed(piece);
  });
  SseReader lines([](const SseEvent&) {});
  expect_error(Errc::LimitExceeded, {"more than 16 MiB"}, [&] {
    for (int i = 0; i < 17; ++i) lines.feed("data: " + piece + "\n");
  });
}

}  // namespace
}  // namespace moeflux::test
