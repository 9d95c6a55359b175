#!/usr/bin/env bash
# Runs the tests of the packages given, of all packages by default. Installs
# what they need when it may, starts a Docker engine when there is none, and
# ends with what was skipped and why.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/deps.sh test

race=(-race)
if ! command -v "${CC:-gcc}" >/dev/null; then
  echo "test: no C compiler, so the race detector stays off"
  race=()
fi
[ $# -gt 0 ] || set -- ./...

# Tests of signals must not inherit that somebody (nohup, a job of a shell)
# ignores some: env sets all of them back, where it can.
reset=()
if env --default-signal true 2>/dev/null; then reset=(env --default-signal); fi
exec "${reset[@]}" scripts/with-docker.sh go run ./scripts/testsum "${race[@]}" -timeout 40m "$@"
