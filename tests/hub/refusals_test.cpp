// What is refused: bytes that are not what was listed, names that lead elsewhere, and doors that
// are closed. Nothing of it is linked.
#include <gtest/gtest.h>

#include "hub/hub_fixture.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

std::string with_body(const std::string& head, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", head, body.size(), body);
}

// A listing of one file, as text.
std::string listing(const std::string& sibling, const std::string& sha = std::string(40, 'a')) {
  return with_body("200 OK\r\nContent-Type: application/json",
                   "{\"sha\": \"" + sha + "\", \"siblings\": [" + sibling + "]}");
}

class RefusalsTest : public HubTest {
 protected:
  void answer_listing_with(const std::string& response) {
    server_.set({.script = [response](const SeenRequest& request, int) {
      return request.target.starts_with("/api/") ? response : std::string();
    }});
  }
  void expect_refused(Errc code, std::initializer_list<std::string_view> parts) {
    expect_error(code, parts, [&] { pull(); });
    expect_nothing_linked();
  }
};

TEST_F(RefusalsTest, BytesThatDoNotHaveTheirHash) {
  server_.set({.spoils_bytes = true});
  expect_refused(Errc::BadInput, {"model-0000", "has the hash", "nothing of it is kept"});
  server_.set({});
  pull();
  expect_whole();
}

TEST_F(RefusalsTest, SizesThatAreNotAsListed) {
  server_.set({.size_offset = 7});
  expect_refused(Errc::Io, {"model-0000", "bytes where the hub lists"});
  server_.set({.size_offset = -7});
  expect_refused(Errc::Io, {"model-0000", "where the hub lists"});
}

TEST_F(RefusalsTest, MoreThanAskedFor) {
  server_.set({.script = [&](const SeenRequest& request, int) -> std::string {
    if (request.target.find("config.json") == std::string::npos) return "";
    return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + std::string(100, 'x');
  }});
  expect_refused(Errc::Io, {"config.json", "more bytes come than the hub lists"});
}

TEST_F(RefusalsTest, AnotherRange) {
  server_.set({.script = [&](const SeenRequest& request, int) -> std::string {
    if (request.headers.count("range") == 0) return "";
    return "HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-9/3000000\r\nContent-Length: "
           "5\r\n\r\nabcde";
  }});
  expect_refused(Errc::Io, {"sends bytes 5 to 9 where", "12 times in a row"});
}

TEST_F(RefusalsTest, CompressedBytes) {
  server_.set({.script = [&](const SeenRequest& request, int) -> std::string {
    if (request.target.find("config.json") == std::string::npos) return "";
    return with_body("200 OK\r\nContent-Encoding: gzip", std::string(22, 'x'));
  }});
  expect_refused(Errc::Io, {"comes compressed (gzip)"});
}

TEST_F(RefusalsTest, NamesThatLeadElsewhere) {
  for (const char* name :
       {"../x.json", "/etc/x.json", "a/../../x.json", "a//b.json", "./x.json", "a/./b.json", "..",
        "", "a\\\\..\\\\x.json", "x\\u0000.json", "a\\nb.json", "x/", "\\u001b[2J.json"}) {
    answer_listing_with(listing(fmt::format(
        "{{\"rfilename\": \"{}\", \"size\": 1, \"blobId\": \"{}\"}}", name, std::string(40, 'b'))));
    expect_refused(Errc::BadInput, {"leads out of the repository"});
  }
  const std::string file =
      "{\"rfilename\": \"config.json\", \"size\": 1, \"blobId\": \"" + std::string(40, 'b') + "\"}";
  answer_listing_with(listing(file + ", " + file));
  expect_refused(Errc::BadInput, {"lists config.json twice"});
  answer_listing_with(
      listing(file + ", {\"rfilename\": \"config.json/x.json\", \"size\": 1, \"blobId\": \"" +
              std::string(40, 'b') + "\"}"));
  expect_refused(Errc::BadInput, {"config.json as a file and as a folder"});
}

TEST_F(RefusalsTest, HashesThatAreNone) {
  for (const char* hash : {"../../x", "", "a/b", ".x", "x y"}) {
    answer_listing_with(listing(fmt::format(
        "{{\"rfilename\": \"model.safetensors\", \"size\": 1, \"blobId\": \"{}\"}}", hash)));
    expect_refused(Errc::BadInput, {"model.safetensors has no hash that can name it"});
  }
  answer_listing_with(listing(
      "{\"rfilename\": \"model.safetensors\", \"lfs\": {\"size\": 1, \"sha256\": \"abc\"}}"));
  expect_refused(Errc::BadInput, {"its SHA-256 is none"});
}

TEST_F(RefusalsTest, ListingsThatAreNone) {
  answer_listing_with(listing("", "../../../x"));
  expect_refused(Errc::BadInput, {"\"sha\" is no commit"});
  answer_listing_with(with_body("200 OK", "[]"));
  expect_refused(Errc::BadInput, {"is no listing"});
  answer_listing_with(with_body("200 OK", "<html>"));
  expect_refused(Errc::BadInput, {"/api/models/maker/model/revision/main"});
  answer_listing_with(with_body("200 OK", "{\"sha\": \"" + std::string(40, 'a') + "\"}"));
  expect_refused(Errc::BadInput, {"lists no files"});
  answer_listing_with(
      listing("{\"rfilename\": \"model.safetensors\", \"lfs\": {\"size\": -1, "
              "\"sha256\": \"" +
              std::string(64, 'a') + "\"}}"));
  expect_refused(Errc::BadInput, {"size"});
  answer_listing_with("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{");
  expect_refused(Errc::LimitExceeded, {"99999999999 bytes, more than"});
  answer_listing_with("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  expect_refused(Errc::Io, {"no HTTP response, or too large"});
}

TEST_F(RefusalsTest, DoorsThatAreClosed) {
  server_.set({.token = "hf_right", .error_code = "RepoNotFound"});
  expect_refused(Errc::NotFound,
                 {"401", "private or gated", "/settings/tokens", "HF_TOKEN", "/home/user/token"});
  PullOptions with = options();
  with.client.settings.token = "hf_wrong";
  server_.set({.token = "hf_right"});
  expect_error(Errc::BadInput, {"401", "is not accepted"}, [&] { pull(with); });
  server_.set({.token = "hf_right", .error_code = "GatedRepo"});
  expect_error(Errc::BadInput, {"403", "accept the model's terms", "account of your token"},
               [&] { pull(with); });
  server_.set({.wanted_revision = "v2"});
  expect_refused(Errc::NotFound, {"404", "no such revision"});
  server_.set({});
  expect_error(Errc::NotFound, {"404", "no such model", "ORG/NAME"}, [&] {
    pull_model({.name = "maker/modle", .revision = "main", .tag = {}, .file = {}}, {}, options());
  });
  // The token is in none of these messages.
  for (const SeenRequest& each : server_.requests())
    EXPECT_EQ(each.target.find("hf_"), std::string::npos);
}

TEST_F(RefusalsTest, RedirectsWithoutAnEnd) {
  server_.set({.script = [&](const SeenRequest& request, int) -> std::string {
    return fmt::format("HTTP/1.1 302 Found\r\nLocation: {}x\r\nContent-Length: 0\r\n\r\n",
                       request.target);
  }});
  expect_refused(Errc::Io, {"more than 8 redirects"});
  server_.set({.script = [](const SeenRequest&, int) -> std::string {
    return "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n";
  }});
  expect_refused(Errc::BadInput, {"only http and https"});
}

TEST_F(RefusalsTest, NobodyAnswers) {
  PullOptions with = options();
  with.client.settings.endpoint = "http://127.0.0.1:1";
  expect_error(Errc::Io, {"cannot reach http://127.0.0.1:1", "HF_ENDPOINT"}, [&] { pull(with); });
  with.client.settings.endpoint = "http://name.invalid";
  expect_error(Errc::Io, {"cannot find name.invalid"}, [&] { pull(with); });
  with = options();
  with.client.settings.offline = true;
  expect_error(Errc::Unsupported, {"HF_HUB_OFFLINE"}, [&] { pull(with); });
  with = options();
  with.client.timing.silence = std::chrono::milliseconds(100);
  server_.set({.script = [](const SeenRequest& request, int) -> std::string {
    if (request.target.find("config.json") == std::string::npos) return "";
    return "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n";
  }});
  with.client.retry.most_failures = 2;
  expect_error(Errc::Io, {"not a byte came for 0.1 s"}, [&] { pull(with); });
}

TEST_F(RefusalsTest, ALinkInTheWayIsNotFollowed) {
  add("sub/x.jinja", "x", false);
  const TempDir elsewhere;
  std::filesystem::create_directories(snapshot());
  std::filesystem::create_directory_symlink(elsewhere.path(), snapshot() + "/sub");
  expect_error(Errc::Io, {"sub", "no directory"}, [&] { pull(); });
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
}

}  // namespace
}  // namespace moeflux::test
