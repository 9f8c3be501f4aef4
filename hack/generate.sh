#!/usr/bin/env bash
# Regenerates every generated file. The tools are on PATH (`make generate`).
set -euo pipefail
cd "$(dirname "$0")/.."

(cd proto && buf generate)

controller-gen object crd paths=./api/... output:crd:dir=config/crd/bases
if grep -rqs '+kubebuilder:rbac' --include='*.go' controllers hostsvc cmd; then
  controller-gen rbac:roleName=plugin-host paths='./...' output:rbac:dir=config/rbac
fi

# The charts carry copies of what is the same however it is installed.
copy_to() {
  rm -rf "$1"
  mkdir -p "$1"
  cp "${@:2}" "$1"
}
copy_to charts/plugin-host-crds/files config/crd/bases/*.yaml
copy_to charts/plugin-host/files/rbac config/rbac/*.yaml
rm charts/plugin-host/files/rbac/kustomization.yaml
copy_to charts/plugin-host/files/monitoring config/monitoring/{prometheus_rule.yaml,dashboard.json}

go generate ./...
