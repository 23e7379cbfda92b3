// Where tests find their data: in the checkout, and unpacked from tests/data. Templates and
// tokenizers of released models are not ours to ship: tests compare with those in ../shared, beside
// the checkout, and say SKIP where that folder is absent.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace moeflux::test {

std::string source_path(const std::string& relative);  // inside the checkout
std::string fixture_path(const std::string& name);     // of tests/fixtures
// A file of tests/data, given without its ending .xz. The build unpacks the folder.
std::string data_path(const std::string& relative);
std::string shared_path(const std::string& relative);  // inside ../shared; may not exist
bool shared_exists(const std::string& relative);

// A fresh directory, removed with everything in it when the object goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file of that name and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

}  // namespace moeflux::test

#define MOEFLUX_NEED_SHARED(relative)            \
  if (!::moeflux::test::shared_exists(relative)) \
  GTEST_SKIP() << "SKIP: ../shared/" << (relative) << " is not on this machine"
