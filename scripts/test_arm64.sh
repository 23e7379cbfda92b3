#!/usr/bin/env bash
# Cross-compiles moeflux for 64-bit Arm, runs tests with qemu, and compares the bundled model's answers with those of
# this machine's build, if there is one. Installs nothing: libraries for Arm are unpacked below build/arm64.
#   scripts/test_arm64.sh [TEST...]      default: backends_test quant_test
set -euo pipefail

cd "$(dirname "$0")/.."
folder=$PWD/build/arm64
root=$folder/root
jobs=${JOBS:-$(nproc)}
tests=("$@")
[ $# -gt 0 ] || tests=(backends_test quant_test)

skip() {
  echo "SKIP: arm64: $*"
  exit 0
}
needed=()
command -v aarch64-linux-gnu-g++ >/dev/null || needed+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || needed+=(qemu-user)
[ ${#needed[@]} -eq 0 ] || skip "no cross compiler or no emulator; on Debian: apt-get install ${needed[*]}"

# A package index of its own: that of the system knows only its own architecture, and not all of these packages can be
# installed for two at once.
get_libraries() {
  command -v apt-get >/dev/null || skip "no apt-get to download libraries for Arm with"
  local state=$folder/apt
  mkdir -p "$state"/{lists,cache,packages} "$root.part"
  : > "$state/status"
  local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache")
  apt-get "${options[@]}" update || skip "no package index for arm64"
  local headers=(libcli11-dev nlohmann-json3-dev libgtest-dev libboost1.81-dev libtomlplusplus-dev)
  local development=(libfmt-dev libsimdjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev liburing-dev libedit-dev libssl-dev)
  local below_libedit=(libbsd0 libmd0 libtinfo6)
  local shared
  mapfile -t shared < <(apt-cache "${options[@]}" depends "${development[@]}" |
    sed -nE 's/^ *Depends: (lib(fmt|simdjson|pcre2-8-|utf8proc|xxhash|uring|edit|ssl)[0-9]+)$/\1/p')
  (cd "$state/packages" && apt-get "${options[@]}" download "${headers[@]}" "${development[@]}" "${shared[@]}" "${below_libedit[@]}") ||
    skip "the libraries for Arm could not be downloaded"
  local package
  for package in "$state"/packages/*.deb; do dpkg-deb --extract "$package" "$root.part"; done
  mv "$root.part" "$root"
}
[ -d "$root" ] || get_libraries

cmake -G Ninja -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake" \
  -DMOEFLUX_ARM64_ROOT="$root" >"$folder/configure.log" || { cat "$folder/configure.log"; exit 1; }
cmake --build "$folder" --parallel "$jobs" --target moeflux "${tests[@]}"

libraries=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu
emulate=(qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$libraries")
for test in "${tests[@]}"; do
  echo "arm64: $test"
  "${emulate[@]}" "$folder/$test" --gtest_brief=1
done

# ISA PRECISION COMMAND...
answer() {
  env "MOEFLUX_CPU_ISA=$1" "${@:3}" run models/demo --quiet --no-think --temp 0 --precision "$2" "Capital of Colombia?"
}
for precision in exact fine fast; do
  want=
  [ ! -x build/release/moeflux ] || want=$(answer '' "$precision" build/release/moeflux)
  for isa in scalar neon neon_dotprod; do
    got=$(answer "$isa" "$precision" "${emulate[@]}" "$folder/moeflux")
    : "${want:=$got}"
    [ "$got" = "$want" ] || { echo "arm64: $isa, $precision: got \"$got\", not \"$want\"" >&2; exit 1; }
  done
  echo "arm64: with $precision products every table answers: $want"
done
