// moeflux ls, show and rm, and models called by name.
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

// A directory of models: a copy, one that is sorted by maker, a link, and one that is broken.
class ModelsTest : public ::testing::Test {
 protected:
  ModelsTest() {
    fs::copy(fixture(), home_.file("plain"));
    fs::create_directories(home_.file("maker"));
    fs::copy(fixture(), home_.file("maker/sorted"));
    fs::create_directory_symlink(source_path("models/demo"), home_.file("linked"));
    fs::create_directories(home_.file("broken"));
    home_.write("broken/config.json", "{");
  }
  static std::string fixture() { return source_path("tests/fixtures/qwen-onekv"); }

  Outcome run(std::vector<std::string> arguments) {
    return run_moeflux(arguments, {.text = "", .env = {{"MOEFLUX_MODELS", home_.path()}}});
  }
  TempDir home_;
};

TEST_F(ModelsTest, ListsThem) {
  const Json json = parse_json(run({"ls", "--json"}).out, "stdout");
  ASSERT_EQ(json.size(), 4u) << json;
  EXPECT_EQ(json[0]["name"], "broken");
  EXPECT_TRUE(json[0]["problem"].is_string());
  EXPECT_TRUE(json[0]["family"].is_null());
  EXPECT_EQ(json[1]["name"], "linked");
  EXPECT_EQ(json[1]["family"], "qwen3_5_moe");
  EXPECT_EQ(json[2]["name"], "maker/sorted");
  EXPECT_EQ(json[3]["name"], "plain");
  EXPECT_EQ(json[3]["path"], home_.file("plain"));
  std::uint64_t bytes = 0;
  for (const auto& each : fs::directory_iterator(home_.file("plain"))) bytes += each.file_size();
  EXPECT_EQ(json[3]["bytes"], bytes);
  EXPECT_EQ(json[3]["modified"].get<std::string>().size(), 20u);

  const Outcome text = run({"ls", home_.path()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out.find("NAME "), 0u);
  EXPECT_NE(text.out.find("\nmaker/sorted "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\n  cannot be used: "), std::string::npos) << text.out;
}

TEST_F(ModelsTest, WithoutADirectoryItSaysHowToNameOne) {
  const Outcome outcome = run_moeflux({"ls"});
  EXPECT_EQ(outcome.exit_code, 1);
  for (const char* part : {"--models", "MOEFLUX_MODELS", "configuration file"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  EXPECT_EQ(run({"ls", home_.file("missing")}).exit_code, 1);
}

TEST_F(ModelsTest, NamesWorkWhereAModelIsGiven) {
  const auto path = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return parse_json(outcome.out, "stdout")["path"];
  };
  EXPECT_EQ(path({"show", "--json", "plain"}), home_.file("plain"));
  EXPECT_EQ(path({"info", "--json", "Sorted"}), home_.file("maker/sorted"));
  EXPECT_EQ(path({"info", "--json", "-m", "maker/sorted"}), home_.file("maker/sorted"));
  const Outcome answer = run({"run", "linked", "--no-think", "What is 12 + 30?"});
  EXPECT_EQ(answer.out, "12 + 30 = 42\n") << answer.err;
  const Outcome unknown = run({"show", "plai"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.err.find("did you mean plain?"), std::string::npos) << unknown.err;
}

TEST_F(ModelsTest, ShowsWhatComesWithAModel) {
  home_.write("plain/README.md",
              "---\ntags:\n- x\nlicense: apache-2.0\n---\n# Card\nlicense: no\n");
  const Outcome text = run({"show", "plain"});
  EXPECT_NE(text.out.find("\nlicense       apache-2.0\n"), std::string::npos) << text.out;
  EXPECT_EQ(run({"show", "plain", "--license"}).out, "apache-2.0\n");
  home_.write("plain/LICENSE", "Do as you like.\n");
  EXPECT_EQ(run({"show", "plain", "--license"}).out, "Do as you like.\n");
  EXPECT_EQ(run({"show", "linked", "--license"}).exit_code, 1);

  const Outcome demo = run({"show", "linked"});
  EXPECT_NE(demo.out.find("\nsampling      temperature 0, top-k 20, top-p 0.9\n"),
            std::string::npos)
      << demo.out;
  const std::string written = read_text_file(source_path("models/demo/chat_template.jinja"));
  EXPECT_EQ(run({"show", "linked", "--template"}).out, written + "\n");
  const Json json = parse_json(run({"show", "linked", "--json"}).out, "stdout");
  EXPECT_EQ(json["template"], written);
  EXPECT_EQ(json["sampling"]["top_k"], 20);
  EXPECT_TRUE(json["license"].is_null());
}

TEST_F(ModelsTest, RemovesAModel) {
  const Json listed = parse_json(run({"ls", "--json"}).out, "stdout");
  const Json json = parse_json(run({"rm", "-y", "--json", "maker/sorted"}).out, "stdout");
  EXPECT_EQ(json["bytes_freed"], listed[2]["bytes"]);
  EXPECT_FALSE(fs::exists(home_.file("maker")));  // nothing was left in it
  const Outcome text = run({"rm", "--yes", "broken"});
  EXPECT_EQ(text.out, "broken: removed, 1 B freed\n") << text.err;
  EXPECT_TRUE(fs::exists(home_.file("plain/config.json")));
  EXPECT_EQ(parse_json(run({"ls", "--json"}).out, "stdout").size(), 2u);
}

// A model in parts is one name, and its parts go together.
TEST_F(ModelsTest, FilesOfGguf) {
  fs::create_directories(home_.file("org"));
  std::size_t n_parts = 0;
  for (const auto& each : fs::directory_iterator(data_path("fixtures/gguf-qwen3moe"))) {
    if (each.path().extension() != ".gguf") continue;
    std::string name = each.path().filename().string();
    fs::copy_file(each.path(), home_.file("org/tiny-" + name.substr(name.find('-') + 1)));
    ++n_parts;
  }
  ASSERT_GT(n_parts, 1u);
  fs::copy_file(data_path("fixtures/gguf-mixtral/model.gguf"), home_.file("mixtral-Q4.gguf"));
  const Json json = parse_json(run({"ls", "--json"}).out, "stdout");
  ASSERT_EQ(json.size(), 6u) << json;
  EXPECT_EQ(json[4]["name"], "org");
  EXPECT_EQ(json[4]["format"], "gguf");
  EXPECT_EQ(json[3]["name"], "mixtral-Q4");
  EXPECT_EQ(json[3]["family"], "mixtral");
  for (const std::string& model :
       {std::string("mixtral-q4"), home_.file("mixtral-Q4.gguf"), std::string("org")}) {
    const Outcome answer = run({"run", model, "--raw", "-n", "4", "AB AB"});
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    const Json info = parse_json(run({"info", "--json", model}).out, "stdout");
    EXPECT_EQ(info["layout"], "gguf");
  }
  const Outcome gone = run({"rm", "-y", "mixtral-Q4"});
  EXPECT_EQ(gone.exit_code, 0) << gone.err;
  EXPECT_FALSE(fs::exists(home_.file("mixtral-Q4.gguf")));
  EXPECT_TRUE(fs::exists(home_.file("plain/config.json")));
  fs::copy_file(data_path("fixtures/gguf-mixtral/model.gguf"), home_.file("org/other.gguf"));
  EXPECT_EQ(run({"rm", "-y", "org/tiny"}).exit_code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(home_.file("org")), {}), 1);
}

TEST_F(ModelsTest, ALinkIsAllThatGoesOfALinkedModel) {
  fs::create_symlink(source_path("models/demo/config.json"), home_.file("plain/linked.json"));
  const Json json = parse_json(run({"rm", "-y", "--json", "linked"}).out, "stdout");
  EXPECT_EQ(json["bytes_freed"], 0);
  EXPECT_EQ(json["link"], true);
  EXPECT_FALSE(fs::is_symlink(home_.file("linked")));
  EXPECT_EQ(run({"rm", "-y", "plain"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(source_path("models/demo/config.json")));
}

TEST_F(ModelsTest, AsksBeforeItRemoves) {
  const Outcome outcome = run({"rm", "plain"});  // standard input is no terminal
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--yes"), std::string::npos) << outcome.err;
  EXPECT_TRUE(fs::exists(home_.file("plain/config.json")));
}

TEST_F(ModelsTest, RefusesToRemoveWhatItMustNot) {
  EXPECT_EQ(run({"rm", "-y"}).exit_code, 2);
  EXPECT_EQ(run({"rm", "-y", "unknown"}).exit_code, 1);
  EXPECT_EQ(run({"rm", "-y", "../" + fs::path(home_.path()).filename().string()}).exit_code, 1);
  // The directory of models is a model itself.
  const Outcome self = run_moeflux({"rm", "-y", "--models", home_.file("plain"), "plain"});
  EXPECT_EQ(self.exit_code, 1);
  EXPECT_TRUE(fs::exists(home_.file("plain/config.json")));
  // Models that a link leads to.
  const TempDir elsewhere;
  fs::create_directories(elsewhere.file("far"));
  fs::copy(fixture(), elsewhere.file("far"));
  fs::create_directory_symlink(elsewhere.path(), home_.file("out"));
  const Outcome outside = run({"rm", "-y", "out/far"});
  EXPECT_EQ(outside.exit_code, 1);
  EXPECT_NE(outside.err.find("outside"), std::string::npos) << outside.err;
  EXPECT_TRUE(fs::exists(elsewhere.file("far/config.json")));
}

TEST_F(ModelsTest, RefusesWhileAConversionWritesThere) {
  const int fd = ::open(home_.file("plain").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const Outcome outcome = run({"rm", "-y", "plain"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("conversion"), std::string::npos) << outcome.err;
  ::close(fd);
  EXPECT_TRUE(fs::exists(home_.file("plain/config.json")));
}

TEST_F(ModelsTest, StripesOnOtherDrivesGoWithTheContainer) {
  const TempDir a, b;
  const Outcome made = run({"convert", "-q", home_.file("plain"), home_.file("striped"), "--stripe",
                            a.file("s") + "=1," + b.file("s") + "=1"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_FALSE(fs::is_empty(a.file("s")));
  const std::string other = a.write("s/experts-999.bin", "not of the model");
  // A stripe whose size is not what was written is not taken for one.
  const std::string changed = b.file("s/experts-000.bin");
  fs::resize_file(changed, fs::file_size(changed) + 1);
  const Outcome outcome = run({"rm", "-y", "--json", "striped"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(parse_json(outcome.out, "stdout")["kept"].size(), 1u);
  EXPECT_NE(outcome.err.find(changed), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(home_.file("striped")));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_FALSE(fs::exists(a.file("s/experts-000.bin")));
  EXPECT_TRUE(fs::exists(changed));
}

}  // namespace
}  // namespace moeflux::test
