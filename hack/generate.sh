#!/usr/bin/env bash
# Regenerates every generated file. The tools are on PATH (`make generate`).
set -euo pipefail
cd "$(dirname "$0")/.."

(cd proto && buf generate)

controller-gen object crd paths=./api/... output:crd:dir=config/crd/bases
if grep -rqs '+kubebuilder:rbac' --include='*.go' controllers hostsvc cmd; then
  controller-gen rbac:roleName=plugin-host paths='./...' output:rbac:dir=config/rbac
fi

# The chart carries copies: Helm installs what lies in crds/ before anything else.
if [[ -d charts/plugin-host ]]; then
  rm -rf charts/plugin-host/crds
  mkdir charts/plugin-host/crds
  cp config/crd/bases/*.yaml charts/plugin-host/crds/
fi

go generate ./...
