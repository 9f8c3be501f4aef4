#!/usr/bin/env bash
# Fails unless the working tree equals the last commit: nothing changed, nothing
# untracked. It runs after everything was regenerated (`make verify`).
set -euo pipefail
cd "$(dirname "$0")/.."

changed=$(git status --porcelain --untracked-files=all)
if [[ -n $changed ]]; then
  git --no-pager diff --stat
  printf 'the tree is not clean after regenerating; commit these, or find out why they changed:\n%s\n' "$changed" >&2
  exit 1
fi
