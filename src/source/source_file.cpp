#include "source/source_file.h"

#include "base/error.h"

namespace moeflux {

SourceFile::SourceFile(File file) : path_(file.path()), size_(file.size()), record_bytes_(size_) {
  stripes_.push_back({std::move(file), size_});
}

SourceFile::SourceFile(std::string path, std::uint64_t n_records, std::vector<Stripe> stripes)
    : path_(std::move(path)), stripes_(std::move(stripes)) {
  for (const Stripe& stripe : stripes_) {
    std::uint64_t expected = 0;
    const bool fits = !__builtin_mul_overflow(n_records, stripe.bytes_per_record, &expected) &&
                      !__builtin_add_overflow(size_, expected, &size_);
    if (!fits || stripe.file.size() != expected) {
      fail(Errc::BadInput,
           "{}: has {} bytes, but {} records of {} bytes are expected; it is truncated or belongs "
           "to another container",
           stripe.file.path(), stripe.file.size(), n_records, stripe.bytes_per_record);
    }
    MOEFLUX_ASSERT(stripe.bytes_per_record > 0);
    record_bytes_ += stripe.bytes_per_record;
  }
  MOEFLUX_ASSERT(!stripes_.empty());
}

void SourceFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  for_each_piece(offset, out.size(), [&](int index, std::uint64_t at, std::uint64_t bytes) {
    part(index).read(at, out.subspan(done, bytes));
    done += bytes;
  });
}

}  // namespace moeflux
