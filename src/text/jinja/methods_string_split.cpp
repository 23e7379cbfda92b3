#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {
namespace {

class Splitter {
 public:
  Splitter(Runtime& runtime, const Value& self, std::int64_t max_splits)
      : runtime_(runtime),
        text_(self.text()),
        safe_(self.is_safe()),
        splits_left_(max_splits < 0 ? INT64_MAX : max_splits) {
    runtime.meter.text(text_.size());
  }

  Value by(const std::string& separator) {
    std::size_t begin = 0;
    while (splits_left_ > 0) {
      const std::size_t found = find_text(runtime_, text_.view(), separator, begin);
      if (found == std::string::npos) break;
      add(begin, found);
      begin = found + separator.size();
    }
    add(begin, text_.size());
    return list();
  }

  Value by_from_end(const std::string& separator) {
    std::size_t end = text_.size();
    runtime_.meter.step(text_.size() / 64 * separator.size());  // the worst a search can cost
    while (splits_left_ > 0 && end >= separator.size()) {
      const std::size_t found = text_.bytes().rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      add(found + separator.size(), end);
      end = found;
    }
    add(0, end);
    std::reverse(parts_.begin(), parts_.end());
    return list();
  }

  Value by_space() {
    std::size_t at = skip(0, true);
    while (at < text_.size()) {
      if (splits_left_ == 0) {
        add(at, text_.size());
        break;
      }
      const std::size_t end = skip(at, false);
      add(at, end);
      at = skip(end, true);
    }
    return list();
  }

  Value by_space_from_end() {
    std::size_t end = strip_end(text_.size());
    while (end > 0) {
      if (splits_left_ == 0) {
        add(0, end);
        break;
      }
      std::size_t begin = end;
      while (begin > 0) {
        const CodePoint c = decode_before(text_.bytes(), begin);
        if (c.valid && is_space(c.value)) break;
        begin -= c.size;
      }
      add(begin, end);
      end = strip_end(begin);
    }
    std::reverse(parts_.begin(), parts_.end());
    return list();
  }

 private:
  void add(std::size_t begin, std::size_t end) {
    parts_.push_back(runtime_.string(text_.substr(begin, end), safe_));
    --splits_left_;
  }
  Value list() { return runtime_.list(std::move(parts_)); }

  // The end of the run of characters at `at` that are spaces, or that are not.
  std::size_t skip(std::size_t at, bool spaces) const {
    while (at < text_.size()) {
      const CodePoint c = decode(text_.bytes(), at);
      if ((c.valid && is_space(c.value)) != spaces) break;
      at += c.size;
    }
    return at;
  }
  std::size_t strip_end(std::size_t end) const {
    while (end > 0) {
      const CodePoint c = decode_before(text_.bytes(), end);
      if (!c.valid || !is_space(c.value)) break;
      end -= c.size;
    }
    return end;
  }

  Runtime& runtime_;
  const MarkedString& text_;
  const bool safe_;
  std::int64_t splits_left_;
  std::vector<Value> parts_;
};

template <bool kFromEnd>
Value split_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  Splitter splitter(runtime, self, bound.integer_or(1, -1));
  if (!bound.given(0)) return kFromEnd ? splitter.by_space_from_end() : splitter.by_space();
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) fail(Errc::BadInput, "empty separator");
  return kFromEnd ? splitter.by_from_end(separator) : splitter.by(separator);
}

Value splitlines_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  std::vector<Value> lines;
  for (MarkedString& line : split_lines(runtime, self.text(), bound.flag(0, false))) {
    lines.push_back(runtime.string(std::move(line), self.is_safe()));
  }
  return runtime.list(std::move(lines));
}

template <bool kFromEnd>
Value partition_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"}, 1);
  const MarkedString& text = self.text();
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) fail(Errc::BadInput, "empty separator");
  runtime.meter.text(text.size());
  const std::size_t found = kFromEnd ? find_last_text(runtime, text.view(), separator)
                                     : find_text(runtime, text.view(), separator);
  const Value nothing = runtime.string("");
  if (found == std::string::npos) {
    return kFromEnd ? runtime.tuple({nothing, nothing, self})
                    : runtime.tuple({self, nothing, nothing});
  }
  const std::size_t after = found + separator.size();
  return runtime.tuple({runtime.string(text.substr(0, found), self.is_safe()),
                        runtime.string(text.substr(found, after), self.is_safe()),
                        runtime.string(text.substr(after), self.is_safe())});
}

Value join_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items_of(runtime, bound[0])) {
    if (!item.is_string()) {
      fail(Errc::BadInput, "join(): expected str instances, {} found", type_name(item));
    }
    if (!first) out.append(self.text());
    first = false;
    const bool escape = self.is_safe() && !item.is_safe();
    out.append(escape ? html_escape(runtime, item.text()) : item.text());
  }
  return out.value(self.is_safe());
}

constexpr std::array<MethodEntry, 6> kSplitMethods = {{
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"join", join_method},
}};

}  // namespace

std::span<const MethodEntry> string_split_methods() {
  return kSplitMethods;
}

}  // namespace moeflux::jinja
