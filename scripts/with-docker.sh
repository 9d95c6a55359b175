#!/usr/bin/env bash
# with-docker.sh COMMAND…: runs the command with a Docker engine at hand.
#
# Where no engine answers, and we are root and dockerd is installed, one is
# started for the command and stopped after it, by its process id. Without an
# engine the command runs all the same; the tests say what they skipped.
set -euo pipefail

socket=/var/run/docker.sock
answers() { [ -S "$socket" ] && docker -H "unix://$socket" version >/dev/null 2>&1; }

engine=
log=
dir=

start() { # more arguments of dockerd
  dockerd --log-level warn "$@" >>"$log" 2>&1 &
  engine=$!
  for _ in $(seq 300); do
    if answers; then return 0; fi
    kill -0 "$engine" 2>/dev/null || return 1
    sleep 0.2
  done
  return 1
}

stop() {
  [ -n "$engine" ] || return 0
  kill "$engine" 2>/dev/null || true
  wait "$engine" 2>/dev/null || true
  engine=
}

finish() {
  stop
  if [ -n "$dir" ]; then rm -rf "$dir"; fi
}

if [ -z "${DOCKER_HOST:-}" ] && ! answers && [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null; then
  dir=$(mktemp -d)
  log=$dir/dockerd.log
  trap finish EXIT
  trap 'exit 130' INT TERM
  # The sandboxes of the tests have no network, so an engine that cannot set
  # up its bridge here is good enough.
  if start || { stop; start --iptables=false --ip6tables=false --bridge=none; }; then
    echo "with-docker: started dockerd, process $engine"
  else
    stop
    echo "with-docker: dockerd does not start here:" >&2
    tail -n 5 "$log" >&2
  fi
fi

status=0
"$@" || status=$?
exit "$status"
