#include "io/file_set.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/aligned_buffer.h"
#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::size_t kAssumedBlock = 4096;  // a multiple of every block size of the disks we know
constexpr std::size_t kLargestBlock =
    65536;  // above this, padding would cost more than the page cache

// What the kernel says direct I/O on this file needs. {1, 1}: it is not possible.
FileAlignment query_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    const std::size_t memory = info.stx_dio_mem_align;
    const std::size_t offset = std::max<std::size_t>(info.stx_dio_offset_align, memory);
    const bool usable = info.stx_dio_offset_align > 1 && std::has_single_bit(offset) &&
                        std::has_single_bit(memory) && memory <= kAssumedBlock &&
                        offset <= kLargestBlock;
    return usable ? FileAlignment{offset, memory} : FileAlignment{};
  }
#endif
  static_cast<void>(fd);
  return {kAssumedBlock, kAssumedBlock};
}

// Some filesystems accept O_DIRECT at open and refuse it at the first read.
bool direct_read_works(int fd, const FileAlignment& alignment) {
  const AlignedBuffer block(alignment.offset);
  ssize_t n = 0;
  do {
    n = ::pread(fd, block.data(), block.size(), 0);
  } while (n < 0 && errno == EINTR);
  return n >= 0 || errno != EINVAL;  // a bad sector is reported by the read that needs it
}

bool same_file(int a, int b) {
  struct stat info_a {};
  struct stat info_b {};
  return ::fstat(a, &info_a) == 0 && ::fstat(b, &info_b) == 0 && info_a.st_dev == info_b.st_dev &&
         info_a.st_ino == info_b.st_ino;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileSet::FileSet(const std::vector<std::string>& paths, bool direct) {
  files_.reserve(paths.size());
  for (const std::string& path : paths) {
    OpenFile& file = files_.emplace_back();
    file.buffered = std::make_unique<File>(path);
    // Experts are chosen by a router: readahead past the end of a record would be read for nothing.
    ::posix_fadvise(file.buffered->descriptor(), 0, 0, POSIX_FADV_RANDOM);
    if (direct) open_direct(file);
  }
}

void FileSet::open_direct(OpenFile& file) {
  const std::string& path = file.buffered->path();
  Descriptor direct(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (direct.get() < 0) {
    if (errno != EMFILE && errno != ENFILE) return;  // EINVAL: the filesystem has no direct I/O
    fail(Errc::Io, "{}: too many open files: raise the limit (ulimit -n)", path);
  }
  const FileAlignment alignment = query_alignment(direct.get());
  if (!alignment.direct() || !direct_read_works(direct.get(), alignment)) return;
  if (!same_file(direct.get(), file.buffered->descriptor())) {
    fail(Errc::Io, "{}: replaced by another file while it was opened; try again", path);
  }
  file.direct = std::move(direct);
  file.alignment = alignment;
  largest_block_ = std::max(largest_block_, alignment.offset);
  ++n_direct_;
}

}  // namespace moeflux
