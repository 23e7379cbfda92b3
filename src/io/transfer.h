// One piece on its way: says which read to ask the kernel for, takes the kernel's answer, and says
// whether to go on. The same state machine serves every reader; all that differs is who carries the
// question to the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <sys/uio.h>

#include "io/async_reader.h"
#include "io/read_plan.h"

namespace moeflux {

// A read as the kernel is asked for it.
struct KernelRead {
  int file = 0;
  bool direct = false;  // which descriptor of the file
  std::uint64_t offset = 0;
  std::array<iovec, 3>
      parts{};  // leading edge, blocks in place, trailing edge; as many as there are
  int n_parts = 0;
  std::size_t bytes() const;
};

// Sees every answer of the kernel (bytes, or minus an errno) and may replace it. Tests put faults
// here. May be called from several threads at once.
using ResultFilter = std::function<std::int64_t(const KernelRead&, std::int64_t)>;

class Transfer {
 public:
  // `edges` holds two blocks of any file, `bounce` one bounce buffer (empty unless the piece is
  // Bounced). Both are aligned to a block and used until the transfer is done.
  void start(const Piece& piece, const FileAlignment& alignment, std::span<std::byte> edges,
             std::span<std::byte> bounce);

  const KernelRead& read() const { return read_; }

  // Takes the kernel's answer to read(). Returns true when the piece is done (see error()), false
  // when read() must be asked again. A transient error is repeated `max_retries` times.
  bool advance(std::int64_t result, int max_retries, ReaderStats& stats);

  int error() const { return error_; }
  const Piece& piece() const { return piece_; }

 private:
  void aim();
  void aim_past_page_cache(std::uint64_t at, std::uint64_t end, std::byte* out);
  void add_part(std::byte* data, std::uint64_t bytes);
  bool take_bytes(std::size_t n, ReaderStats& stats);
  std::size_t copy_out(std::size_t wanted) const;
  bool take_error(int error, int max_retries, ReaderStats& stats);

  Piece piece_;
  FileAlignment alignment_;
  std::span<std::byte> edges_;
  std::span<std::byte> bounce_;
  KernelRead read_;
  std::byte* scratch_ = nullptr;  // where the whole read goes when no part of it goes in place
  std::size_t skip_ = 0;          // bytes of the read before the first wanted one
  std::size_t done_ = 0;          // bytes of the piece that are in place
  bool direct_ = false;
  int interruptions_ = 0;
  int retries_ = 0;
  int error_ = 0;
};

}  // namespace moeflux
