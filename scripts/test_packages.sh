#!/usr/bin/env bash
# Builds the packages in a fresh root of a Debian release, looks at them with lintian, and uses them in another, bare
# root as an administrator would: installs, boots, asks, upgrades while it answers, removes, purges. Needs root,
# debootstrap, and systemd-nspawn (package systemd-container) for the boot.
#   scripts/test_packages.sh [OPTIONS] SUITE          bookworm, trixie
#     --mirror URL      where packages come from (default: what apt on this machine uses)
#     --work DIR        the roots and the results (default: /var/tmp/moeflux-packages)
#     --packages DIR    use these packages instead of building
#     --tests           run `make test` in the root of the build, too
set -euo pipefail

source_tree=$(cd "$(dirname "$0")/.." && pwd)
suite='' mirror='' work=/var/tmp/moeflux-packages packages='' run_tests=false
while [ $# -gt 0 ]; do
  case $1 in
    --mirror) mirror=$2; shift ;;
    --work) work=$2; shift ;;
    --packages) packages=$2; shift ;;
    --tests) run_tests=true ;;
    -*) echo "unknown option $1" >&2; exit 2 ;;
    *) suite=$1 ;;
  esac
  shift
done
[ -n "$suite" ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "test_packages: needs root, to make roots" >&2; exit 1; }
if [ -z "$mirror" ]; then
  mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^Debian //p' | head -n 1)
fi
[ -n "$mirror" ] || { echo "test_packages: apt names no mirror of Debian; give one with --mirror" >&2; exit 1; }

work=$work/$suite
build=$work/build bare=$work/bare
mkdir -p "$work"
say() { printf '\n== %s\n' "$*"; }
ok() { printf 'ok: %s\n' "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
expect() { [ "$2" = "$3" ] || die "$1: expected \"$3\", got \"$2\""; ok "$1"; }

unmount() {
  local root
  for root in "$build" "$bare"; do
    mountpoint -q "$root/proc" && umount "$root/proc"
    mountpoint -q "$root/dev" && umount -l "$root/dev"
  done
  true
}
trap unmount EXIT

# A root as debootstrap leaves it, made once.
fresh_root() {
  if [ ! -f "$work/base.tar" ]; then
    say "debootstrap $suite"
    rm -rf "$work/base"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/base" "$mirror" >"$work/debootstrap.log" ||
      { tail "$work/debootstrap.log" >&2; die "debootstrap; the log is $work/debootstrap.log"; }
    tar -C "$work/base" -cf "$work/base.tar" .
    rm -rf "$work/base"
  fi
  rm -rf "$1"
  mkdir -p "$1"
  tar -C "$1" -xf "$work/base.tar"
  mount -t proc proc "$1/proc"
  mount --bind /dev "$1/dev"
  inside "$1" apt-get update -qq
}
inside() {
  local root=$1
  shift
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
install_in() { inside "$1" apt-get install -y -qq --no-install-recommends "${@:2}" >"$work/apt.log" 2>&1 ||
  { tail "$work/apt.log" >&2; die "apt-get install ${*:2}"; }; }

build_packages() {
  [ -d "$build/src" ] || { fresh_root "$build"; install_in "$build" build-essential debhelper lintian; }
  mountpoint -q "$build/proc" || mount -t proc proc "$build/proc"
  mountpoint -q "$build/dev" || mount --bind /dev "$build/dev"
  mkdir -p "$build/src"
  git -C "$source_tree" ls-files -z --cached --others --exclude-standard |
    tar -C "$source_tree" --null --ignore-failed-read -T - -cf - | tar -C "$build/src" -xf -
  say "make deb"
  inside "$build" env JOBS="${JOBS:-$(nproc)}" make -C /src deb >"$work/build.log" 2>&1 ||
    { tail -n 20 "$work/build.log" >&2; die "make deb; the log is $work/build.log"; }
  packages=$build/src/build/packages
  ok "make deb: $(cd "$packages" && echo *.deb)"
  inside "$build" sh -c 'lintian --fail-on error,warning --display-info /src/build/packages/*.changes' \
    >"$work/lintian.log" 2>&1 || { cat "$work/lintian.log" >&2; die lintian; }
  ok "lintian: no errors, no warnings"
  if $run_tests; then
    say "make test"
    inside "$build" env CI=false make -C /src test >"$work/test.log" 2>&1 || { tail "$work/test.log" >&2; die "make test"; }
    ok "$(grep 'tests passed' "$work/test.log" | tail -n 1)"
  fi
}

# The same packages with a later version.
make_upgrade() {
  local deb name
  mkdir -p "$bare/upgrade"
  for deb in "$bare"/packages/*.deb; do
    name=$(basename "$deb" .deb)
    rm -rf "$bare/upgrade/tree"
    inside "$bare" dpkg-deb -R "/packages/$name.deb" /upgrade/tree
    sed -i -E "s/^(Version: .*)/\1+1/; s/\((>?=) ($version)\)/(\1 \2+1)/g" "$bare/upgrade/tree/DEBIAN/control"
    inside "$bare" dpkg-deb -Znone -b /upgrade/tree "/upgrade/$name.deb" >/dev/null
  done
  rm -rf "$bare/upgrade/tree"
}
package_files() { (cd "$bare/$1" && printf "/$1/%s\n" *.deb); }

# Runs in the booted root, and says how it went.
write_boot_test() {
  cat >"$bare/root/boot_test.sh" <<'BOOT'
set -eu
url=http://127.0.0.1:9099
question='{"model": "demo", "messages": [{"role": "user", "content": "What is 12 + 30?"}], "temperature": 0,
  "chat_template_kwargs": {"enable_thinking": false}}'
ok() { echo "ok: $*"; }
expect() { [ "$2" = "$3" ] || { echo "FAILED: $1: expected \"$3\", got \"$2\""; exit 1; }; ok "$1"; }
state() { systemctl is-active "$1" || true; }
expect "after boot the socket listens" "$(state moeflux.socket)" active
expect "and the service does not run" "$(state moeflux.service)" inactive
expect "the first request starts it" "$(curl -sS -m 60 $url/health)" '{"status":"ok"}'
expect "the service is ready" "$(state moeflux.service)" active
expect "it answers" "$(curl -sS -m 60 $url/v1/chat/completions -H 'Content-Type: application/json' -d "$question" |
  sed 's/.*"content":"\([^"]*\)".*/\1/')" "12 + 30 = 42"
pid=$(systemctl show -p MainPID --value moeflux.service)
uid=$(ps -o uid= -p "$pid" | tr -d ' ')
[ "$uid" -ge 61184 ] && [ "$uid" -le 65519 ] && ok "as a user of its own ($uid)"
# On disk it belongs to nobody where systemd maps the user while the service runs.
expect "its cache is its own" "$(stat -c %u:%a /var/cache/private/moeflux | sed "s/^\($uid\|65534\):/own:/")" "own:700"
journalctl -q -u moeflux.service -o cat | grep -q 'POST /v1/chat/completions 200' && ok "the request is in the journal"
systemctl show -p StatusText --value moeflux.service

# Somebody asks all the time, also while dpkg works.
sed -i 's/^# keep-alive.*/keep-alive = "10m"/' /etc/moeflux/serve.toml
(while :; do curl -sS -m 60 $url/health || echo " FAILED"; echo; sleep 0.02; done) >/root/asked 2>&1 &
asking=$!
sleep 0.5
dpkg -i /upgrade/*.deb >/root/upgrade.log 2>&1 || { cat /root/upgrade.log; exit 1; }
sleep 1
kill $asking
expect "during the upgrade every one of $(wc -l </root/asked) requests was answered" "$(sort -u /root/asked)" '{"status":"ok"}'
expect "a changed configuration stays" "$(grep -c '^keep-alive = "10m"' /etc/moeflux/serve.toml)" 1
[ "$(systemctl show -p MainPID --value moeflux.service)" != "$pid" ] && ok "the new service runs"
expect "its options are right" "$(moeflux config show serve --config /etc/moeflux/serve.toml | sed -n 's/^keep-alive = \("10m"\).*/\1/p')" '"10m"'
systemctl stop moeflux.service
expect "it stops with its socket left open" "$(state moeflux.socket)" active
expect "and starts again when asked" "$(curl -sS -m 60 $url/health)" '{"status":"ok"}'

apt-get remove -y -qq moeflux-service >/dev/null 2>&1
expect "removed: nobody listens" "$(curl -sS -m 5 $url/health 2>&1 | grep -c 'Failed to connect\|Connection refused\|Could not connect')" 1
expect "and no unit is left" "$(systemctl list-unit-files --no-legend 'moeflux*' | wc -l)" 0
apt-get purge -y -qq moeflux-service >/dev/null 2>&1
expect "purged: no configuration, no cache" "$(ls -d /etc/moeflux /var/cache/moeflux /var/cache/private/moeflux 2>/dev/null | wc -l)" 0
echo done
BOOT
  cat >"$bare/etc/systemd/system/boot-test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sh /root/boot_test.sh >/root/boot_test.log 2>&1; systemctl poweroff --no-block'
[Install]
WantedBy=default.target
UNIT
  mkdir -p "$bare/etc/systemd/system/default.target.wants"
  ln -sf ../boot-test.service "$bare/etc/systemd/system/default.target.wants/boot-test.service"
}

# Debian 13's systemd runs on version 2 of control groups only.
boot() {
  command -v systemd-nspawn >/dev/null || { echo "SKIP: systemd-nspawn is not here (package systemd-container)"; return; }
  say "boot"
  install_in "$bare" systemd systemd-sysv dbus curl procps
  write_boot_test
  unmount
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=${UNIFIED_HIERARCHY:-1} timeout 300 systemd-nspawn -q -D "$bare" --register=no \
    --keep-unit --private-network -b >"$work/boot.log" 2>&1 </dev/null || true
  [ -f "$bare/root/boot_test.log" ] || { tail -n 20 "$work/boot.log" >&2; die "it did not boot; the log is $work/boot.log"; }
  cat "$bare/root/boot_test.log"
  grep -q '^done$' "$bare/root/boot_test.log" || die "the service"
  mount -t proc proc "$bare/proc"
  mount --bind /dev "$bare/dev"
}

use_packages() {
  say "a bare root"
  fresh_root "$bare"
  mkdir -p "$bare/packages"
  cp "$packages"/*.deb "$bare/packages/"
  rm -f "$bare"/packages/*-dbgsym_*
  version=$(inside "$bare" dpkg-deb -f "/packages/$(basename "$bare"/packages/moeflux_*.deb)" Version)
  mapfile -t debs < <(package_files packages)
  install_in "$bare" "${debs[@]}"
  ok "apt-get install: $(inside "$bare" dpkg-query -W -f='${Package} ${Version}, ' '*moeflux*')"
  inside "$bare" moeflux --version
  expect "it answers" "$(inside "$bare" moeflux run --no-think 'What is 12 + 30?' </dev/null)" "12 + 30 = 42"
  for file in usr/share/man/man1/moeflux-serve.1.gz usr/share/bash-completion/completions/moeflux \
    usr/share/zsh/vendor-completions/_moeflux usr/share/fish/vendor_completions.d/moeflux.fish; do
    [ -e "$bare/$file" ] || die "/$file is not there"
  done
  ok "man pages and completions"
  expect "the socket is enabled, the service is not" \
    "$(cd "$bare/etc/systemd/system" && find . -name 'moeflux*' | sort | tr '\n' ' ')" "./sockets.target.wants/moeflux.socket "

  say "the library"
  install_in "$bare" gcc libc6-dev pkg-config
  cp "$source_tree"/examples/c/ask.c "$bare/root/"
  inside "$bare" sh -c 'cc -Wall -Werror /root/ask.c $(pkg-config --cflags --libs moeflux) -o /root/ask'
  expect "a program that uses it" "$(inside "$bare" /root/ask /usr/share/moeflux/models/demo 'What is 12 + 30?' 2>/dev/null |
    grep -o '12 + 30 = 42')" "12 + 30 = 42"

  make_upgrade
  boot
  say "without a service manager"
  mapfile -t debs < <(package_files upgrade)
  install_in "$bare" "${debs[@]}"
  inside "$bare" apt-get purge -y -qq '*moeflux*' >"$work/apt.log" 2>&1 || { tail "$work/apt.log" >&2; die purge; }
  expect "purge leaves nothing" "$(cd "$bare" && find etc usr var -path var/lib/apt -prune -o -path var/cache/apt -prune -o \
    -name '*moeflux*' -print | grep -v '^var/log' | tr '\n' ' ')" ""
}

[ -n "$packages" ] || build_packages
use_packages
say "$suite: everything is well"
