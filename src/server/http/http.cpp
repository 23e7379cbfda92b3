#include "server/http/http.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace moeflux {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "%41+b" -> "A b" in a query; a path keeps its plus signs. Broken escapes stay as they are.
std::string percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

void parse_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (part.empty()) continue;
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    query[percent_decode(part.substr(0, equals), true)] = percent_decode(value, true);
  }
}

constexpr std::string_view kBlanks = " \t";

std::string trimmed_lower(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  text = text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
  return lower_case(text);
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

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  const auto found = headers.find(std::string(lower_case_name));
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

HttpError bad_request(const std::string& message, std::string param) {
  return HttpError(400, "invalid_request_error", message).with_param(std::move(param));
}

HttpError to_http_error(const Error& error) {
  switch (error.code()) {
    case Errc::BadInput:
      return {400, "invalid_request_error", error.what()};
    case Errc::Unsupported:
      return {501, "not_supported_error", error.what()};
    case Errc::NotFound:
      return {404, "not_found_error", error.what()};
    case Errc::LimitExceeded:
      return HttpError(429, "rate_limit_error", error.what()).with_header("Retry-After", "5");
    case Errc::Cancelled:
      return HttpError(503, "unavailable_error", error.what()).with_header("Retry-After", "30");
    case Errc::Io:
    case Errc::OutOfMemory:
      break;
  }
  return {500, "server_error", error.what()};
}

std::string_view status_text(int status) {
  static const std::map<int, std::string_view> texts{
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
      {529, "Overloaded"},
  };
  const auto found = texts.find(status);
  return found == texts.end() ? "Status" : found->second;
}

void split_target(std::string_view target, HttpRequest& request) {
  if (const std::size_t scheme = target.find("://");
      scheme != std::string_view::npos && target.substr(0, scheme).find('/') == target.npos) {
    const std::size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  const std::size_t mark = target.find('?');
  request.path = percent_decode(target.substr(0, mark), false);
  if (mark != std::string_view::npos) parse_query(target.substr(mark + 1), request.query);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::optional<HttpError> check_framing(const HttpHeaders& headers, bool is_http_1_1) {
  const std::size_t n_hosts = count(headers, "host");
  if (n_hosts > 1) return bad_request("there is more than one Host header");
  if (n_hosts == 0 && is_http_1_1) return bad_request("the Host header is missing");
  return check_coding(headers, is_http_1_1);
}

}  // namespace moeflux
