#include "support/paths.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace moeflux::test {
namespace fs = std::filesystem;

std::string source_path(const std::string& relative) {
  return std::string(MOEFLUX_SOURCE_DIR) + "/" + relative;
}

std::string fixture_path(const std::string& name) {
  return source_path("tests/fixtures/" + name);
}

std::string data_path(const std::string& relative) {
  return std::string(MOEFLUX_TEST_DATA) + "/" + relative;
}

std::string shared_path(const std::string& relative) {
  return std::string(MOEFLUX_SOURCE_DIR) + "/../shared/" + relative;
}

bool shared_exists(const std::string& relative) {
  return fs::exists(shared_path(relative));
}

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "moeflux-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempDir::write(const std::string& name, const std::string& content) const {
  const std::string path = file(name);
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

}  // namespace moeflux::test
