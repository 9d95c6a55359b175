#!/usr/bin/env bash
# Installs the Debian packages that the tests (or, with "bench", the
# benchmarks) use. Installs only what is missing, and only as root on a system
# with apt; otherwise it names what is missing and goes on: the tests skip
# what they cannot do and say so.
set -euo pipefail

packages=(
  ca-certificates git make procps
  gcc libc6-dev        # the race detector
  openssh-client tmux  # the stories that use the system's ssh, with and without a terminal
  docker.io iptables   # the docker driver
  mmdebstrap debian-archive-keyring uidmap # base:latest from a Debian mirror
  busybox-static e2fsprogs iproute2
)
case "${1:-test}" in
  test) ;;
  bench) packages+=(python3) ;;
  *) echo "usage: deps.sh [test|bench]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "deps: not a Debian system; install the equivalents of: ${packages[*]}"
  exit 0
fi

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] && continue
  # A Docker engine of another make serves as well.
  case $p in docker.io | iptables) command -v dockerd >/dev/null && continue ;; esac
  missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "deps: not root, so not installing: ${missing[*]}"
  exit 0
fi

echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for try in 1 2 3; do
  # A package source of somebody else that is down is no reason to stop here.
  apt-get -qq -o DPkg::Lock::Timeout=120 update >"$log" 2>&1 || true
  # From Debian 13 on the client of the engine is a package of its own.
  if [[ " ${missing[*]} " == *" docker.io "* ]] && apt-cache show docker-cli >/dev/null 2>&1; then missing+=(docker-cli); fi
  if apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    exit 0
  fi
  echo "deps: attempt $try did not succeed"
  sleep $((try * 5))
done
tail -n 30 "$log" >&2
echo "deps: apt-get could not install ${missing[*]}" >&2
exit 1
