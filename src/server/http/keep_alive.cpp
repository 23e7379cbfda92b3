#include "server/http/keep_alive.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr double kForEver = 10.0 * 365 * 86400;  // seconds; more is not told apart

[[noreturn]] void refuse(std::string_view text) {
  fail(Errc::BadInput,
       "\"{}\" is no time to keep a model: give seconds, or a duration such as 10m or 1h30m",
       text.substr(0, 64));
}

double unit_seconds(std::string_view unit, std::string_view text) {
  if (unit == "ms") return 1e-3;
  if (unit == "s" || unit.empty()) return 1;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  if (unit == "d") return 86400;
  refuse(text);
}

KeepAlive of_seconds(double seconds, std::string_view text) {
  if (std::isnan(seconds)) refuse(text);
  if (seconds < 0 || seconds > kForEver) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

}  // namespace

KeepAlive parse_keep_alive(std::string_view text) {
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  if (rest.empty()) refuse(text);
  double seconds = 0;
  bool has_plain = false;  // a number without a unit stands alone
  while (!rest.empty()) {
    double value = 0;
    const auto result =
        std::from_chars(rest.data(), rest.data() + rest.size(), value, std::chars_format::fixed);
    if (result.ec != std::errc() || rest[0] == '-' || !std::isfinite(value) || has_plain)
      refuse(text);
    rest.remove_prefix(static_cast<std::size_t>(result.ptr - rest.data()));
    const std::string_view unit = rest.substr(0, rest.find_first_of("0123456789."));
    rest.remove_prefix(unit.size());
    has_plain = unit.empty();
    if (has_plain && seconds > 0) refuse(text);
    seconds += value * unit_seconds(unit, text);
  }
  return of_seconds(negative && seconds > 0 ? -1 : seconds, text);
}

KeepAlive read_keep_alive(const Json& value) {
  if (value.is_string()) return parse_keep_alive(value.get_ref<const std::string&>());
  if (!value.is_number()) refuse(value.dump());
  return of_seconds(value.get<double>(), value.dump());
}

}  // namespace moeflux
