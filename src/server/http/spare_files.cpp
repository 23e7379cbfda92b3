#include "server/http/spare_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux {

SpareFiles::SpareFiles() {
  refill();
  if (files_.size() == kCount) return;
  const std::size_t n_missing = kCount - files_.size();
  for (const int file : files_) ::close(file);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  fail(
      Errc::Io,
      "a server needs {} open files for its connections, {} more than this process may have; allow "
      "at least {} with ulimit -n, and as many more as the model has files",
      kCount, n_missing, limit.rlim_cur + n_missing);
}

SpareFiles::~SpareFiles() {
  for (const int file : files_) ::close(file);
}

bool SpareFiles::give_up_one() {
  if (files_.empty()) return false;
  ::close(files_.back());
  files_.pop_back();
  return true;
}

void SpareFiles::refill() {
  while (files_.size() < kCount) {
    const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    files_.push_back(file);
  }
}

}  // namespace moeflux
