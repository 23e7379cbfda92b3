#!/usr/bin/env bash
# Installs the Debian packages the build needs, and only those that are missing: silent and without root when
# everything is there. On other systems it only checks that the tools and headers can be found.
#   install_deps.sh [PACKAGE ...]   also these; each is the name of a tool as well
#   install_deps.sh --browser       what the test of the web page needs, and that only: the test says SKIP without it
set -euo pipefail

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

if [ "${1:-}" = --browser ]; then
  if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
  fi
  if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
    echo "moeflux: chromium and chromedriver are missing; the web page will not be tested in a browser" >&2
    exit 0
  fi
  echo "moeflux: installing chromium chromium-driver" >&2
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core ||
    echo "moeflux: they could not be installed; the web page will not be tested in a browser" >&2
  exit 0
fi

packages=(
  g++ make cmake ninja-build pkg-config python3
  libfmt-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev liburing-dev libedit-dev libtomlplusplus-dev libssl-dev
  libgtest-dev xz-utils clang-19
)
tools=("${CXX:-c++}" cmake ninja pkg-config python3)
headers=(
  fmt/format.h CLI/CLI.hpp nlohmann/json.hpp simdjson.h pcre2.h utf8proc.h
  xxhash.h liburing.h histedit.h toml++/toml.h openssl/ssl.h boost/beast/version.hpp gtest/gtest.h
)
packages+=("$@")
tools+=("$@")
min_boost=1.81

if ! command -v dpkg-query >/dev/null; then
  missing=()
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  if command -v "${tools[0]}" >/dev/null; then
    for header in "${headers[@]}"; do
      echo "#include <$header>" | "${tools[0]}" -std=c++20 -DPCRE2_CODE_UNIT_WIDTH=8 -E -x c++ - >/dev/null 2>&1 || missing+=("<$header>")
    done
  fi
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "moeflux: not found: ${missing[*]}" >&2
  echo "moeflux: this is not a Debian system; please install the equivalents of: ${packages[*]} libboost-dev ($min_boost or newer)" >&2
  exit 1
fi

# Debian has several versions of Boost at a time, each with its number in the package's name.
newest_boost() {
  sed -n 's/^libboost\(1\.[0-9]*\)-dev$/\1/p' | sort -V | tail -n 1
}
at_least() {
  [ -n "$1" ] && [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}
is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
installed_boost=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 'libboost1.*-dev' 2>/dev/null |
  sed -n 's/^installed //p' | newest_boost || true)
needs_boost=true
at_least "$installed_boost" "$min_boost" && needs_boost=false
[ ${#missing[@]} -eq 0 ] && ! $needs_boost && exit 0

$needs_boost && missing+=("libboost-dev ($min_boost or newer)")
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
  echo "moeflux: please run as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "moeflux: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
if $needs_boost; then
  boost=$(apt-cache pkgnames libboost1. | newest_boost)
  if ! at_least "$boost" "$min_boost"; then
    echo "moeflux: this release of Debian has Boost ${boost:-in no version}; moeflux needs $min_boost or newer" >&2
    exit 1
  fi
  missing[-1]=libboost$boost-dev
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
