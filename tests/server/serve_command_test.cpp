// moeflux serve as a program: what it says, and how it ends.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cli/program.h"
#include "server/http_client.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

// A port that is free now, and most probably in a moment.
int free_port() {
  static int next = 20000 + ::getpid() % 20000;
  for (;; ++next) {
    try {
      HttpClient taken(next);
    } catch (const std::runtime_error&) {
      return next++;
    }
  }
}

class ServeCommandTest : public testing::Test {
 protected:
  void start(std::vector<std::string> more = {}) { start_with_environment({}, std::move(more)); }
  void start_with_environment(std::map<std::string, std::string> environment,
                              std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "serve",          "--port", std::to_string(port_), "-t", "1", "-c", "4096",
        "--prefix-store", "off",    "--parallel",          "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program_.emplace(program_path(), arguments,
                     with_demo_model({.text = "", .env = std::move(environment)}));
    for (int i = 0; i < 2000 && health() != 200; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_EQ(health(), 200);
  }
  int health() const {
    try {
      return get(port_, "/health").status;
    } catch (const std::runtime_error&) {  // it does not listen yet
      return 0;
    }
  }
  // A client that gets an endless answer.
  std::unique_ptr<HttpClient> listen() {
    auto client = std::make_unique<HttpClient>(port_);
    client->post("/v1/chat/completions",
                 R"({"messages": [{"role": "user", "content": "Tell me a story."}],
                     "stream": true, "ignore_eos": true})");
    for (int i = 0; i < 3; ++i) client->read_until("\"delta\":");
    return client;
  }

  const int port_ = free_port();
  std::optional<Program> program_;
};

TEST_F(ServeCommandTest, SaysWhereAndWhat) {
  start();
  program_->signal(SIGTERM);
  const Outcome outcome = program_->finish();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "");
  const std::string url = "http://127.0.0.1:" + std::to_string(port_);
  EXPECT_NE(outcome.err.find("listening on " + url), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("ready: demo at " + url + "/v1, context 4096 tokens, 1 at a time"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("memory: "), std::string::npos);
}

TEST_F(ServeCommandTest, SigtermLetsAnAnswerEnd) {
  start();
  HttpClient client(port_);
  client.post("/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "Tell me a story."}], "stream": true,
                  "ignore_eos": true, "max_tokens": 300, "temperature": 0})");
  client.read_until("\"delta\":");
  program_->signal(SIGTERM);
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(program_->finish().exit_code, 0);
}

TEST_F(ServeCommandTest, SigtermEndsLongAnswersWithAReason) {
  start({"--drain-seconds", "0.2"});
  const auto client = listen();
  program_->signal(SIGTERM);
  const std::string rest = client->read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"type\":\"unavailable_error\""), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  const Outcome outcome = program_->finish();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("stopping: 1 answers"), std::string::npos) << outcome.err;
}

TEST_F(ServeCommandTest, ASecondSignalEndsItAtOnce) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer holds signals back until a system call returns";
#endif
  start({"--drain-seconds", "600"});
  const auto client = listen();
  program_->signal_and_wait(SIGINT);
  EXPECT_FALSE(program_->ended());
  program_->signal(SIGINT);
  EXPECT_EQ(program_->finish().exit_code, 130);
}

TEST_F(ServeCommandTest, ModelsOfADirectoryAreLoadedByName) {
  start({"--models", source_path("models"), "--ram", "300M"});
  const Json question = {
      {"model", "demo-mla"},
      {"temperature", 0},
      {"chat_template_kwargs", {{"enable_thinking", false}}},
      {"messages", Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}}})}};
  const Json answer = post(port_, "/v1/chat/completions", question).json();
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), "12 + 30 = 42");
  Json other = question;
  other["model"] = "demo";
  other["stream"] = true;
  other["ignore_eos"] = true;
  other["max_tokens"] = 300;
  HttpClient client(port_);
  client.post("/v1/chat/completions", other.dump());
  client.read_until("\"delta\":");
  program_->signal(SIGTERM);
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos);
  const Outcome outcome = program_->finish();
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* note : {"models: 2 in ", "ready: demo-mla at http", "unloaded demo-mla",
                           "ready: demo at http", "memory: ", "stopping: 1 answers"})
    EXPECT_NE(outcome.err.find(note), std::string::npos) << note << "\n" << outcome.err;
}

TEST_F(ServeCommandTest, ADirectoryOfModelsMustBeThere) {
  const Outcome outcome = run_moeflux({"serve", "--port", "0", "--models", "/nowhere/at/all"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("/nowhere/at/all: no such directory"), std::string::npos)
      << outcome.err;
}

// A model that was released without its tokenizer.
void copy_without_tokenizer(const std::string& to) {
  std::filesystem::create_directories(to);
  for (const auto& each : std::filesystem::directory_iterator(source_path("models/demo"))) {
    const std::string name = each.path().filename();
    if (!name.starts_with("tokenizer"))
      std::filesystem::create_symlink(each.path(), to + "/" + name);
  }
}

TEST_F(ServeCommandTest, AModelWithoutTokenizerIsRefused) {
  const TempDir directory;
  copy_without_tokenizer(directory.file("mute"));
  const Outcome alone = run_moeflux({"serve", directory.file("mute"), "--port", "0"});
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_NE(alone.err.find("has no tokenizer"), std::string::npos) << alone.err;
  EXPECT_EQ(alone.err.find("ready"), std::string::npos) << alone.err;

  std::filesystem::create_directory_symlink(source_path("models/demo"), directory.file("demo"));
  start({"--models", directory.path()});
  const ClientResponse refused =
      post(port_, "/v1/completions", {{"model", "mute"}, {"prompt", {1, 2}}});
  EXPECT_EQ(refused.status, 500);
  EXPECT_NE(refused.body.find("has no tokenizer"), std::string::npos) << refused.body;
  const Json asked = {{"model", "demo"}, {"prompt", "12 +"}, {"max_tokens", 1}};
  EXPECT_EQ(post(port_, "/v1/completions", asked).status, 200);
}

// With any number of open files it either says what it needs or answers.
TEST_F(ServeCommandTest, FewOpenFiles) {
  int n_refused = 0, n_served = 0;
  for (const int n_files : {6, 10, 14, 16, 18, 20, 22, 24, 26, 28, 32, 40, 64}) {
    const int port = free_port();
    const std::string command = "ulimit -n " + std::to_string(n_files) + "; exec " +
                                program_path() + " serve -t 1 -c 512 --prefix-store off --port " +
                                std::to_string(port);
    Program program("/bin/sh", {"-c", command}, with_demo_model());
    const auto health = [&] {
      try {
        return get(port, "/health").status;
      } catch (const std::runtime_error&) {  // it does not listen
        return 0;
      }
    };
    for (int i = 0; i < 2000 && !program.ended() && health() != 200; ++i)
      std::this_thread::sleep_for(5ms);
    if (program.ended()) {
      ++n_refused;
      const Outcome outcome = program.finish();
      if (n_files >= 10) {  // else not even its libraries can be opened
        EXPECT_EQ(outcome.exit_code, 1) << n_files << outcome.err;
        EXPECT_NE(outcome.err.find("ulimit -n"), std::string::npos) << n_files << outcome.err;
      }
      EXPECT_EQ(outcome.err.find("ready"), std::string::npos) << n_files << outcome.err;
      continue;
    }
    ++n_served;
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port));
      clients.back()->get("/health");
    }
    int n_answered = 0;
    for (int i = 0; i < 5; ++i)
      n_answered += clients[static_cast<std::size_t>(i)]->read().status == 200;
    EXPECT_EQ(n_answered, 5) << n_files;
    clients.clear();
    EXPECT_EQ(health(), 200) << n_files;
    program.signal(SIGTERM);
    EXPECT_EQ(program.finish().exit_code, 0) << n_files;
  }
  EXPECT_GE(n_refused, 2);
  EXPECT_GE(n_served, 3);
}

TEST_F(ServeCommandTest, ATakenPortIsSaid) {
  start({"--api-key", "secret"});
  const Outcome second = run_moeflux({"serve", "--port", std::to_string(port_)});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.err.find("is taken"), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("--port"), std::string::npos);
  EXPECT_EQ(get(port_, "/v1/models").status, 401);
  EXPECT_EQ(get(port_, "/v1/models", "Authorization: Bearer secret\r\n").status, 200);
}

// A socket that its program inherits, and where it tells that it is ready: what systemd gives.
class ServiceTest : public ServeCommandTest {
 protected:
  ServiceTest() : notices_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const std::string path = directory_.file("notify");
    std::memcpy(where.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(notices_, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(notices_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~ServiceTest() override { ::close(notices_); }

  // Runs the program with the socket as its descriptor 3.
  void start_service(const std::string& options) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
    ASSERT_EQ(::listen(listener, 8), 0);
    socklen_t size = sizeof(where);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size);
    service_port_ = ntohs(where.sin_port);
    const int shared = ::fcntl(listener, F_DUPFD, 4);  // a shell names only ten
    ASSERT_LT(shared, 10);
    const std::string n = std::to_string(shared);
    Input input = with_demo_model({.text = "", .env = {{"LISTEN_FDS", "1"}}});
    input.env["NOTIFY_SOCKET"] = directory_.file("notify");
    program_.emplace("/bin/sh",
                     std::vector<std::string>{"-c", "LISTEN_PID=$$ exec " + program_path() +
                                                        " serve -t 1 -c 512 --prefix-store off " +
                                                        options + " 3<&" + n + " " + n + "<&-"},
                     input);
    ::close(shared);
    ::close(listener);
  }
  std::string notice() {
    std::array<char, 4096> text{};
    const ssize_t n = ::recv(notices_, text.data(), text.size(), 0);
    return n < 0 ? "nothing" : std::string(text.data(), static_cast<std::size_t>(n));
  }

  const TempDir directory_;
  int notices_, service_port_ = 0;
};

TEST_F(ServiceTest, AnswersOnTheSocketOfAServiceManager) {
  start_service("--host 192.0.2.1 --port 9");
  EXPECT_EQ(notice(), "STATUS=loading the model");
  const std::string ready = notice();
  EXPECT_TRUE(ready.starts_with("READY=1\nSTATUS=ready: demo at http://127.0.0.1:")) << ready;
  EXPECT_EQ(get(service_port_, "/health").status, 200);
  const Json props = get(service_port_, "/props").json();
  EXPECT_EQ(props.at("moeflux").at("build").at("version"),
            parse_json(run_moeflux({"version", "--json"}).out, "version").at("version"));
  program_->signal(SIGTERM);
  EXPECT_EQ(notice(), "STOPPING=1");
  EXPECT_EQ(program_->finish().exit_code, 0);
}

TEST_F(ServiceTest, WithSeveralModelsItIsReadyAtOnce) {
  start_service("--models " + source_path("models"));
  EXPECT_EQ(notice(), "STATUS=loading the model");
  EXPECT_TRUE(notice().starts_with("READY=1\nSTATUS=2 models"));
  program_->signal(SIGTERM);
  EXPECT_EQ(notice(), "STOPPING=1");
  EXPECT_EQ(program_->finish().exit_code, 0);
}

TEST_F(ServeCommandTest, SocketsForAnotherProcessAreNotTaken) {
  start_with_environment({{"LISTEN_FDS", "1"}, {"LISTEN_PID", "1"}});
  EXPECT_EQ(get(port_, "/health").status, 200);
}

TEST_F(ServeCommandTest, LogsOneLineForEachRequest) {
  start({"--log-format", "json"});
  get(port_, "/nothing");
  post(port_, "/v1/completions", {{"prompt", "12 +"}, {"max_tokens", 2}});
  program_->signal(SIGTERM);
  const Outcome outcome = program_->finish();
  std::vector<Json> requests;
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, "line");
    if (json.at("event") == "request") requests.push_back(json);
  }
  ASSERT_EQ(requests.size(), 2u) << outcome.err;
  std::sort(requests.begin(), requests.end(),
            [](const Json& a, const Json& b) { return a.at("status") < b.at("status"); });
  EXPECT_EQ(requests[0].at("path"), "/v1/completions");
  EXPECT_EQ(requests[0].at("completion_tokens"), 2);
  EXPECT_EQ(requests[0].at("model"), "demo");
  EXPECT_EQ(requests[1].at("level"), "warning");
}

TEST_F(ServeCommandTest, QuietOnesLogErrorsOnly) {
  start({"-q"});
  get(port_, "/nothing");
  program_->signal(SIGTERM);
  EXPECT_EQ(program_->finish().err, "");
}

TEST_F(ServeCommandTest, WrongOptionsAreRefused) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--port", "70000"},
                                                    {"--parallel", "0"},
                                                    {"--max-body", "lots"},
                                                    {"--drain-seconds", "-1"},
                                                    {"--max-models", "0"},
                                                    {"--keep-alive", "soon"},
                                                    {"--tls-key", "x"},
                                                    {"--tls-cert", "x"},
                                                    {"--log-level", "loud"},
                                                    {"--log-format", "xml"},
                                                    {"--api-key", ""}}) {
    std::vector<std::string> all{"serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_moeflux(all);
    EXPECT_EQ(outcome.exit_code, 2) << arguments[0] << outcome.err;
    EXPECT_NE(outcome.err.find(arguments[0]), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace moeflux::test
