#include "server/http/http_framing.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace moeflux {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string trimmed_lower(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  text = text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// All fields of that name as one list.
std::vector<std::string> list_of(const HttpHeaders& headers, std::string_view name) {
  std::vector<std::string> items;
  for (const auto& [field, value] : headers) {
    if (field != name) continue;
    std::string_view rest = value;
    while (true) {
      const std::size_t comma = rest.find(',');
      items.push_back(trimmed_lower(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return items;
}

std::size_t count(const HttpHeaders& headers, std::string_view name) {
  return static_cast<std::size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const auto& field) { return field.first == name; }));
}

std::optional<HttpError> check_coding(const HttpHeaders& headers, bool is_http_1_1) {
  const std::vector<std::string> codings = list_of(headers, "transfer-encoding");
  if (codings.empty()) return std::nullopt;
  if (!is_http_1_1) return bad_request("HTTP/1.0 has no Transfer-Encoding");
  if (count(headers, "content-length") > 0)
    return bad_request("a request has either a Content-Length or a Transfer-Encoding");
  for (const std::string& coding : codings) {
    if (coding != "chunked") {
      return HttpError(501, "not_supported_error",
                       fmt::format("the Transfer-Encoding \"{}\" is not known; send \"chunked\" or "
                                   "a Content-Length",
                                   coding.substr(0, 64)));
    }
  }
  if (codings.size() > 1) return bad_request("the Transfer-Encoding \"chunked\" is given twice");
  return std::nullopt;
}

}  // namespace

std::optional<HttpError> check_framing(const HttpHeaders& headers, bool is_http_1_1) {
  const std::size_t n_hosts = count(headers, "host");
  if (n_hosts > 1) return bad_request("there is more than one Host header");
  if (n_hosts == 0 && is_http_1_1) return bad_request("the Host header is missing");
  return check_coding(headers, is_http_1_1);
}

}  // namespace moeflux
