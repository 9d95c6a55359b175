#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME ("10s") each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}

found=0
while IFS=: read -r file target; do
  found=$((found + 1))
  echo "fuzz: $(dirname "$file") $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")"
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|^\./||; s|:func |:|')
echo "fuzz: $found targets, $time each"
