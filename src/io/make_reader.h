// The reader that suits this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/async_reader.h"
#include "io/reader_options.h"

namespace moeflux {

// Opens `paths`; ReadOp::file is an index into them. Throws Error when a file cannot be opened,
// when an option is out of range, or when options.kind is Uring and the kernel refuses it. info()
// of the reader says what was chosen and why.
std::unique_ptr<AsyncReader> make_reader(const std::vector<std::string>& paths,
                                         const ReaderOptions& options = {});

}  // namespace moeflux
