#include "io/async_reader.h"

#include <system_error>

namespace moeflux {

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
