#include "cli/build_info.h"

#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/processors.h"
#include "cli/version.h"
#include "engine/engine.h"

namespace moeflux::cli {
namespace {

// As /proc/cpuinfo spells them: x86, then Arm.
constexpr std::array kInteresting{
    "sse4_2",   "avx",      "avx2",        "fma",         "f16c",        "avx_vnni", "avx512f",
    "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8",
    "amx_bf16", "asimd",    "asimddp",     "i8mm",        "bf16",        "sve",      "sve2"};

// As they were at build time.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kLibraries{{
    {"Boost", MOEFLUX_BOOST_VERSION},
    {"OpenSSL", MOEFLUX_OPENSSL_VERSION},
    {"fmt", MOEFLUX_FMT_VERSION},
    {"simdjson", MOEFLUX_SIMDJSON_VERSION},
    {"nlohmann-json", MOEFLUX_JSON_VERSION},
    {"PCRE2", MOEFLUX_PCRE2_VERSION},
    {"liburing", MOEFLUX_URING_VERSION},
}};

}  // namespace

std::string program_version() {
  return MOEFLUX_VERSION;
}
std::string program_commit() {
  return MOEFLUX_COMMIT;
}
std::string build_type() {
  return MOEFLUX_BUILD_TYPE;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

std::string package() {
  return MOEFLUX_PACKAGE;
}

std::string version_text() {
  std::string text = version_line() + "\n";
  if (!package().empty()) text += fmt::format("package    {}\n", package());
  std::string libraries;
  for (const auto& [name, version] : kLibraries)
    libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, version);
  return text + fmt::format("libraries  {}\n", libraries);
}

Json build_json() {
  const auto or_null = [](std::string value) {
    return value.empty() ? Json() : Json(std::move(value));
  };
  Json libraries = Json::object();
  for (const auto& [name, version] : kLibraries) libraries[std::string(name)] = version;
  return {{"version", program_version()},  {"commit", or_null(program_commit())},
          {"type", or_null(build_type())}, {"compiler", compiler()},
          {"package", or_null(package())}, {"libraries", std::move(libraries)}};
}

std::string version_line() {
  std::string parts = program_commit();
  for (const std::string& part : {build_type(), compiler()}) {
    if (!part.empty()) parts += (parts.empty() ? "" : ", ") + part;
  }
  return fmt::format("moeflux {} ({})", program_version(), parts);
}

CpuInfo cpu_info() {
  CpuInfo info{
      .name = "unknown", .n_cores = static_cast<int>(usable_processors().size()), .features = {}};
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line) && (flags.empty() || info.name == "unknown");) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.compare(0, 10, "model name") == 0) info.name = line.substr(colon + 2);
    if (line.compare(0, 5, "flags") == 0 || line.compare(0, 8, "Features") == 0) {
      std::istringstream words(line.substr(colon + 2));
      for (std::string word; words >> word;) flags.insert(word);
    }
  }
  for (const char* feature : kInteresting) {
    if (flags.count(feature) > 0) info.features.emplace_back(feature);
  }
  return info;
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendInfo& info : backend_list()) {
    const std::string missing = info.missing();
    names.push_back(missing.empty() ? info.make({})->name()
                                    : fmt::format("{} ({})", info.name, missing));
  }
  return names;
}

}  // namespace moeflux::cli
