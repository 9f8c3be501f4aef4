#!/usr/bin/env bash
# Runs every fuzz target of the tree for a time (30s), one after the other; the go
# command fuzzes one target of one package at once.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1

count=0
while IFS=: read -r file line; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<< "$line")
  echo "== $name in $(dirname "$file")"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")"
  count=$((count + 1))
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' | xargs -r grep -HE '^func Fuzz' | sort)

if [[ $count == 0 ]]; then
  echo "the tree has no fuzz target" >&2
  exit 1
fi
echo "$count fuzz targets ran $time each without a finding"
