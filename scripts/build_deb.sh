#!/usr/bin/env bash
# Builds the Debian packages of this tree into build/packages. Objects stay in build/deb for the next time.
#   scripts/build_deb.sh        JOBS=N: so many compilers at a time
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v dpkg-buildpackage >/dev/null; then
  echo "make deb: dpkg-buildpackage is not here; on Debian: apt-get install build-essential debhelper" >&2
  exit 1
fi
version=$(dpkg-parsechangelog --show-field Version)
ours=$(sed -n 's/^project(moeflux VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [ "${version%%[-+~]*}" != "$ours" ]; then
  echo "make deb: debian/changelog says $version, CMakeLists.txt says $ours; they must agree" >&2
  exit 1
fi
if ! missing=$(dpkg-checkbuilddeps 2>&1); then
  if [ "$(id -u)" -ne 0 ]; then
    echo "make deb: ${missing#dpkg-checkbuilddeps: error: }; as root: apt-get build-dep $PWD" >&2
    exit 1
  fi
  echo "make deb: installing what the build needs" >&2
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get build-dep -y -qq --no-install-recommends "$PWD"
fi

packages=$PWD/build/packages
mkdir -p "$packages"
rm -f "$packages"/*
export MOEFLUX_PACKAGES=$packages
files=$packages/moeflux_${version}_$(dpkg-architecture -qDEB_HOST_ARCH)
dpkg-buildpackage --build=binary --no-sign --jobs="${JOBS:-$(nproc)}" \
  --buildinfo-file="$files.buildinfo" --buildinfo-option=-u"$packages" \
  --changes-file="$files.changes" --changes-option=-u"$packages"
ls -l "$packages"
