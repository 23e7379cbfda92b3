// The `format` of strings.
#include "text/grammar/json_pieces.h"

namespace moeflux {
namespace {

#define MOEFLUX_DATE                                                                              \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|"                        \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define MOEFLUX_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
// Without two hyphens in a row, which have a meaning of their own.
#define MOEFLUX_LABEL "[A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]{1,15}){0,2}"
#define MOEFLUX_HOST MOEFLUX_LABEL "(?:\\." MOEFLUX_LABEL "){0,5}"
#define MOEFLUX_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

#define MOEFLUX_UUID_OF(version) \
  "^[0-9a-f]{8}-[0-9a-f]{4}-" version "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

struct Format {
  std::string_view name, pattern;
};

constexpr Format kFormats[] = {
    {"date", "^" MOEFLUX_DATE "$"},
    {"time", "^" MOEFLUX_TIME "$"},
    {"date-time", "^" MOEFLUX_DATE "T" MOEFLUX_TIME "$"},
    {"duration",
     "^P(?:\\d{1,4}W|\\d{1,4}D(?:T\\d{1,4}[HMS])?|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|"
     "\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30}){0,2}@" MOEFLUX_LABEL
              "(?:\\." MOEFLUX_LABEL "){1,4}$"},
    {"hostname", "^" MOEFLUX_HOST "$"},
    {"ipv4", "^(?:" MOEFLUX_OCTET "\\.){3}" MOEFLUX_OCTET "$"},
    {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"uri",
     "^[a-z][a-z0-9+.-]{0,15}://" MOEFLUX_HOST
     "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]{0,200}){0,20}"
     "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,200})?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,100})?$"},
    {"uuid1", MOEFLUX_UUID_OF("1")},
    {"uuid3", MOEFLUX_UUID_OF("3")},
    {"uuid4", MOEFLUX_UUID_OF("4")},
    {"uuid5", MOEFLUX_UUID_OF("5")},
    {"uuid7", MOEFLUX_UUID_OF("7")},
    {"base64", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    {"base64url", "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?$"},
    {"jwt", "^[A-Za-z0-9_-]{4,}\\.[A-Za-z0-9_-]{4,}\\.[A-Za-z0-9_-]{4,}$"},
    {"json-pointer", "^(?:/(?:[^~/\\u0000-\\u001F]|~[01])*)*$"},
    {"relative-json-pointer", "^(?:0|[1-9]\\d{0,3})(?:#|(?:/(?:[^~/\\u0000-\\u001F]|~[01])*)*)$"},
    {"color", "^#[0-9a-fA-F]{6}$"},
};

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  // What is written for a narrower format is right for the wider one.
  if (format == "idn-email") format = "email";
  if (format == "idn-hostname") format = "hostname";
  if (format == "iri" || format == "uri-reference" || format == "iri-reference" ||
      format == "url" || format == "uri-template")
    format = "uri";
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return std::nullopt;
}

}  // namespace moeflux
