#!/usr/bin/env bash
# Installs the Debian packages that the tests (or, with "bench", the
# benchmarks) use, and what of their tools Debian does not have. Installs only
# what is missing, and packages only as root on a system with apt; otherwise it
# names what is missing and goes on: the tests skip what they cannot do and say
# so.
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
  test) # what docs/clients.md speaks of
    packages+=(rsync curl lftp sshfs putty-tools dropbear-bin python3-paramiko python3-asyncssh)
    command -v npm >/dev/null || packages+=(nodejs npm)
    ;;
  bench) packages+=(python3) ;;
  *) echo "usage: deps.sh [test|bench]" >&2; exit 2 ;;
esac

tools=${XDG_CACHE_HOME:-$HOME/.cache}/sandgate-tools

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "deps: not a Debian system; install the equivalents of: ${packages[*]}"
    return 0
  fi
  local missing=() p
  for p in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] && continue
    # A Docker engine of another make serves as well.
    case $p in docker.io | iptables) command -v dockerd >/dev/null && continue ;; esac
    missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" != 0 ]; then
    echo "deps: not root, so not installing: ${missing[*]}"
    return 0
  fi

  echo "deps: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local try
  for try in 1 2 3; do
    # A package source of somebody else that is down is no reason to stop here.
    apt-get -qq -o DPkg::Lock::Timeout=120 update >"$log" 2>&1 || true
    # From Debian 13 on the client of the engine is a package of its own.
    if [[ " ${missing[*]} " == *" docker.io "* ]] && apt-cache show docker-cli >/dev/null 2>&1; then missing+=(docker-cli); fi
    if apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
      return 0
    fi
    echo "deps: attempt $try did not succeed"
    sleep $((try * 5))
  done
  tail -n 30 "$log" >&2
  echo "deps: apt-get could not install ${missing[*]}" >&2
  return 1
}

# ssh-audit of Debian 13: that of Debian 12 does not know today's algorithms.
# It is Python without dependencies, so it runs from where it was unpacked.
audit_version=3.3.0-2
audit_sha256=5a0fde3b33d133f72624d32ce9a9c165afebd74f3c729fd91de9288aabc0cd45
install_audit() {
  local to=$tools/ssh-audit helper=/usr/lib/apt/apt-helper
  [ "$(cat "$to/version" 2>/dev/null)" != $audit_version ] || return 0
  if [ ! -x $helper ]; then
    echo "deps: no apt here, so no ssh-audit"
    return 0
  fi
  echo "deps: installing ssh-audit $audit_version in $to"
  rm -rf "$to"
  mkdir -p "$to"
  if $helper download-file "http://deb.debian.org/debian/pool/main/s/ssh-audit/ssh-audit_${audit_version}_all.deb" \
    "$to/package.deb" SHA256:$audit_sha256 >"$log" 2>&1 && dpkg -x "$to/package.deb" "$to" >>"$log" 2>&1; then
    echo $audit_version >"$to/version"
  else
    tail -n 5 "$log"
    echo "deps: ssh-audit could not be had; its test is skipped"
  fi
}

# npm's ssh2, at the versions of the lock file.
install_ssh2() {
  local from=cmd/sandgate/cli/testdata/clients to=$tools/ssh2
  # It is copied last, so it says that all is there.
  ! cmp -s $from/package-lock.json "$to/installed.json" || return 0
  if ! command -v npm >/dev/null; then
    echo "deps: no npm here, so no ssh2"
    return 0
  fi
  echo "deps: installing npm's ssh2 in $to"
  rm -rf "$to"
  mkdir -p "$to"
  cp $from/package.json $from/package-lock.json "$to/"
  if npm ci --prefix "$to" --omit=optional --ignore-scripts --no-audit --no-fund >"$log" 2>&1; then
    cp $from/package-lock.json "$to/installed.json"
  else
    tail -n 5 "$log"
    echo "deps: ssh2 could not be had; its test is skipped"
  fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$(dirname "$0")/.."
install_packages
if [ "${1:-test}" = test ]; then
  install_audit
  install_ssh2
fi
