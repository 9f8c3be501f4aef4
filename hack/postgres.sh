#!/usr/bin/env bash
# Makes sure that the system has PostgreSQL's server binaries, which the tests run
# as a throwaway cluster. Installs Debian's package when it may; says what to do
# otherwise. It looks where package test/postgres looks.
set -euo pipefail

find_server() {
  local initdb
  for initdb in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
    if [[ -n $initdb && -x $initdb && -x $(dirname "$(readlink -f "$initdb")")/postgres ]]; then
      return 0
    fi
  done
  return 1
}

fail() {
  echo "PostgreSQL's server binaries (initdb, postgres) are neither on PATH nor in /usr/lib/postgresql/*/bin: $1" >&2
  exit 1
}

find_server && exit 0

command -v apt-get > /dev/null || fail "install PostgreSQL 15 or later"
[[ $(id -u) == 0 ]] || fail "run 'sudo apt-get install postgresql', or install PostgreSQL 15 or later"

echo "installing PostgreSQL from the distribution's packages"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && apt-get install -y --no-install-recommends postgresql; } > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "installing the package 'postgresql' failed, see above"
fi
find_server || fail "the package 'postgresql' was installed and has none"
