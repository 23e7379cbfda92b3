// Open files that are kept back for connections. Where no more may be opened, whatever else has
// taken them, giving one up makes room to accept a client: a few are always answered, and the next
// is told that there are too many instead of waiting unheard.
#pragma once

#include <cstddef>
#include <vector>

namespace moeflux {

class SpareFiles {
 public:
  static constexpr std::size_t kCount = 8;

  SpareFiles();  // throws Error(Io) with the number needed when so many cannot be opened
  ~SpareFiles();
  SpareFiles(const SpareFiles&) = delete;
  SpareFiles& operator=(const SpareFiles&) = delete;

  bool empty() const { return files_.empty(); }
  bool give_up_one();  // false: there is none left
  void refill();       // as far as possible

 private:
  std::vector<int> files_;
};

}  // namespace moeflux
