#include "io/make_reader.h"

#include <system_error>

#include "base/error.h"
#include "io/pool_reader.h"
#include "io/uring_reader.h"

namespace moeflux {
namespace {

void check_range(const char* name, int value, int min, int max) {
  if (value < min || value > max) {
    fail(Errc::BadInput, "reader option {} is {}; it must be from {} to {}", name, value, min, max);
  }
}

}  // namespace

void validate(const ReaderOptions& options) {
  check_range("queue_depth", options.queue_depth, 1, 4096);
  check_range("threads", options.threads, 1, 256);
  check_range("max_retries", options.max_retries, 0, 100);
}

std::unique_ptr<AsyncReader> make_reader(const std::vector<std::string>& paths,
                                         const ReaderOptions& options) {
  validate(options);
  FileSet files(paths, options.direct);
  if (options.kind == ReaderKind::Pool) {
    return std::make_unique<PoolReader>(std::move(files), options);
  }
  UringSetup setup = open_uring(options.queue_depth);
  if (setup.status == UringStatus::Used) {
    return std::make_unique<UringReader>(std::move(files), options, std::move(setup));
  }
  if (options.kind == ReaderKind::Uring) {
    fail(Errc::Unsupported, "{}; or let the thread pool read instead",
         describe_uring(setup.status, setup.error));
  }
  return std::make_unique<PoolReader>(std::move(files), options, setup.status, setup.error);
}

std::string describe_read_error(int error) {
  if (error == kEndOfFile) return "the file ends before the last byte of the read";
  return std::generic_category().message(error);
}

ReaderStats& ReaderStats::operator+=(const ReaderStats& other) {
  ops += other.ops;
  failed_ops += other.failed_ops;
  bytes += other.bytes;
  kernel_reads += other.kernel_reads;
  kernel_bytes += other.kernel_bytes;
  copied_bytes += other.copied_bytes;
  retries += other.retries;
  fallbacks += other.fallbacks;
  wait_ns += other.wait_ns;
  return *this;
}

}  // namespace moeflux
