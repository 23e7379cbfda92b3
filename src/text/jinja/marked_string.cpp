#include "text/jinja/marked_string.h"

#include <algorithm>

namespace moeflux::jinja {

MarkedString::MarkedString(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::Data) mark(0, bytes_.size());
}

std::vector<MarkedString::Range>::const_iterator MarkedString::range_after(std::size_t byte) const {
  return std::upper_bound(data_.begin(), data_.end(), byte,
                          [](std::size_t at, const Range& range) { return at < range.end; });
}

Origin MarkedString::origin_at(std::size_t byte) const {
  const auto range = range_after(byte);
  return range != data_.end() && range->begin <= byte ? Origin::Data : Origin::Markup;
}

std::size_t MarkedString::memory_bytes() const {
  return sizeof(*this) + bytes_.capacity() + data_.capacity() * sizeof(Range);
}

MarkedString MarkedString::substr(std::size_t begin, std::size_t end) const {
  MarkedString part;
  part.append(*this, begin, end);
  return part;
}

void MarkedString::append(const MarkedString& other, std::size_t begin, std::size_t end) {
  const std::size_t shift = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  for (auto range = other.range_after(begin); range != other.data_.end(); ++range) {
    if (range->begin >= end) break;
    mark(shift + std::max(range->begin, begin) - begin, shift + std::min(range->end, end) - begin);
  }
}

void MarkedString::append(std::string_view bytes, Origin origin) {
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (origin == Origin::Data) mark(begin, bytes_.size());
}

void MarkedString::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!data_.empty() && data_.back().end == begin) {
    data_.back().end = end;
  } else {
    data_.push_back({begin, end});
  }
}

}  // namespace moeflux::jinja
