#!/usr/bin/env bash
# Installs the Debian packages the build needs, and only those that are missing: silent and without root when
# everything is there.
set -euo pipefail

packages=(
  g++ make cmake ninja-build pkg-config python3
  libfmt-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev liburing-dev libboost1.81-dev libedit-dev
  libgtest-dev xz-utils
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "moeflux: this is not a Debian system; please install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "moeflux: please run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "moeflux: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
