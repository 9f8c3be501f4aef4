#!/usr/bin/env bash
# Renders every kustomization, and the charts with Helm 3 and 4, for a Kubernetes version (1.37.2) and
# throws the result away: whatever doesn't render or lint fails. The tools are on
# PATH (`make verify`).
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1

while read -r file; do
  echo "kustomize build $(dirname "$file")"
  kustomize build "$(dirname "$file")" > /dev/null
done < <(find config -name kustomization.yaml | sort)

for chart in charts/*/; do
  [[ -f $chart/Chart.yaml ]] || continue
  # Its defaults, then each set of values that it is meant to be used with.
  for values in "$chart"values.yaml "$chart"ci/*-values.yaml; do
    [[ -f $values ]] || continue
    for helm in helm helm4; do
      echo "$helm lint and template $chart with $values"
      "$helm" lint --strict --quiet --kube-version "$version" --values "$values" "$chart"
      "$helm" template test "$chart" --kube-version "$version" --values "$values" > /dev/null
    done
  done
done
