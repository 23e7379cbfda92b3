#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {
namespace {

Value escape_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("escape", arguments, {});
  if (input.is_safe()) return input;
  return runtime.string(html_escape(runtime, to_text(runtime, input)), true);
}

Value forceescape_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("forceescape", arguments, {});
  return runtime.string(html_escape(runtime, to_text(runtime, input)), true);
}

Value safe_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("safe", arguments, {});
  return runtime.string(to_text(runtime, input), true);
}

MarkedString without_between(const MarkedString& text, std::string_view open,
                             std::string_view close) {
  MarkedString result;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = text.bytes().find(open, at);
    const std::size_t end =
        begin == std::string::npos ? begin : text.bytes().find(close, begin + open.size());
    if (end == std::string::npos) break;
    result.append(text, at, begin);
    at = end + close.size();
  }
  result.append(text, at, text.size());
  return result;
}

Value striptags_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("striptags", arguments, {});
  const MarkedString source = to_text(runtime, input);
  runtime.meter.text(4 * source.size());
  const MarkedString text = without_between(without_between(source, "<!--", "-->"), "<", ">");
  TextBuilder words(runtime);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool space = c.valid && is_space(c.value);
    const bool after_space = !words.empty() && words.text().view().ends_with(' ');
    if (!space) words.append(text, at, at + c.size);
    if (space && !after_space && !words.empty()) words.append(" ", text.origin_at(at));
    at += c.size;
  }
  MarkedString result = strip(runtime, words.take(), Side::Right, nullptr);
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},   {"&gt;", ">"},    {"&#39;", "'"},
      {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"},
  };
  for (const auto& [entity, character] : kEntities) {
    result = replace(runtime, result, MarkedString(std::string(entity), Origin::Markup),
                     MarkedString(std::string(character), Origin::Markup), -1);
  }
  return runtime.string(std::move(result));
}

MarkedString url_quote(Runtime& runtime, const Value& value, bool for_query) {
  const MarkedString text = to_text(runtime, value);
  TextBuilder out(runtime);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out.append(text, at, at + 1);
    } else if (c == ' ' && for_query) {
      out.append("+", text.origin_at(at));
    } else {
      out.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), text.origin_at(at));
    }
  }
  return out.take();
}

Value urlencode_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("urlencode", arguments, {});
  if (input.is_string() || !is_iterable(input)) {
    return runtime.string(url_quote(runtime, input, false));
  }
  TextBuilder out(runtime);
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out.append("&");
    out.append(url_quote(runtime, key, true));
    out.append("=");
    out.append(url_quote(runtime, value, true));
  };
  if (input.is(Kind::Dict)) {
    for (const auto& [key, value] : input.as<DictObject>().entries()) add(key, value);
    return out.value();
  }
  for (const Value& pair : items_of(runtime, input)) {
    const std::vector<Value> parts = items_of(runtime, pair);
    if (parts.size() != 2) fail(Errc::BadInput, "urlencode: expected pairs of key and value");
    add(parts[0], parts[1]);
  }
  return out.value();
}

Value xmlattr_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("xmlattr", arguments, {"autospace"});
  if (!input.is(Kind::Dict)) fail(Errc::BadInput, "xmlattr: expected a dict");
  TextBuilder out(runtime);
  for (const auto& [key, value] : input.as<DictObject>().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string() || key.view().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      fail(Errc::BadInput, "xmlattr: invalid attribute name {}", to_repr(runtime, key).view());
    }
    if (!out.empty() || bound.flag(0, true)) out.append(" ");
    out.append(html_escape(runtime, key.text()));
    out.append("=\"");
    out.append(value.is_safe() ? value.text() : html_escape(runtime, to_text(runtime, value)));
    out.append("\"");
  }
  return out.value();
}

constexpr std::array<FilterEntry, 7> kHtmlFilters = {{
    {"safe", safe_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", forceescape_filter},
    {"striptags", striptags_filter},
    {"urlencode", urlencode_filter},
    {"xmlattr", xmlattr_filter},
}};

}  // namespace

std::span<const FilterEntry> html_filters() {
  return kHtmlFilters;
}

}  // namespace moeflux::jinja
