#!/usr/bin/env bash
# Runs plugins' pods on a real kubelet with containerd, where this machine allows it;
# elsewhere says why not, and fails nothing. The node's parts are taken from PATH, or
# fetched once into a folder of their own, and never installed. The developer tools are
# on PATH (`make e2e-pods`).
set -euo pipefail
cd "$(dirname "$0")/../.."

cannot() {
  echo "e2e-pods: not run here: $1"
  exit 0
}

[[ $(uname -s) == Linux ]] || cannot "a kubelet runs on Linux"
[[ $(id -u) == 0 ]] || cannot "a kubelet needs root"
grep -qw overlay /proc/filesystems || cannot "the kernel has no overlay file system"
if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
  [[ -w /sys/fs/cgroup ]] || cannot "cgroups can't be written"
else
  for controller in cpu cpuacct cpuset devices freezer memory pids; do
    [[ -w /sys/fs/cgroup/$controller ]] || cannot "the cgroup controller $controller can't be written"
  done
fi
command -v ip > /dev/null || cannot "there is no command 'ip' (iproute2)"
ip link add kandev-e2e0 type veth peer name kandev-e2e1 2> /dev/null || cannot "no network device can be made"
ip link del kandev-e2e0
for process in kubelet containerd dockerd; do
  if [[ -n $(pidof "$process" || true) ]]; then cannot "a $process runs on this machine, and would be disturbed"; fi
done

version=$(sed -n 's|^.*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' hack/tools/kubernetes/go.mod)
tools=${KANDEV_E2E_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/kandev-plugin-host/e2e-$version}
mkdir -p "$tools/bin" "$tools/cni"

parts=(containerd containerd-shim-runc-v2 ctr runc)
plugins=(loopback ptp host-local)
have() {
  local name
  for name in "${parts[@]}"; do [[ -x $tools/bin/$name ]] || return 1; done
  for name in "${plugins[@]}"; do [[ -x $tools/cni/$name ]] || return 1; done
}
if ! have; then
  # What is installed comes first.
  for name in "${parts[@]}"; do
    at=$(command -v "$name" || true)
    if [[ -n $at ]]; then ln -sf "$at" "$tools/bin/$name"; fi
  done
  for name in "${plugins[@]}"; do
    for folder in /opt/cni/bin /usr/lib/cni /usr/libexec/cni; do
      if [[ -x $folder/$name ]]; then ln -sf "$folder/$name" "$tools/cni/$name"; fi
    done
  done
fi
if ! have; then
  command -v apt-get > /dev/null && command -v dpkg > /dev/null ||
    cannot "containerd, runc and the CNI plugins aren't installed, and only Debian's packages are known here"
  echo "e2e-pods: fetching containerd, runc and the CNI plugins, without installing them"
  fetched=$(mktemp -d)
  trap 'rm -rf "$fetched"' EXIT
  chmod 755 "$fetched"
  (cd "$fetched" && apt-get download containerd runc containernetworking-plugins) > "$fetched/log" 2>&1 ||
    cannot "the packages can't be fetched: $(tail -n 1 "$fetched/log")"
  for package in "$fetched"/*.deb; do dpkg -x "$package" "$fetched/root"; done
  for name in "${parts[@]}"; do
    for folder in usr/bin usr/sbin; do
      if [[ -x $fetched/root/$folder/$name ]]; then cp "$fetched/root/$folder/$name" "$tools/bin/$name"; fi
    done
  done
  for name in "${plugins[@]}"; do cp "$fetched/root/usr/lib/cni/$name" "$tools/cni/$name"; done
  have || cannot "the packages lack a part"
fi
"$tools/bin/runc" --version > /dev/null 2>&1 || cannot "runc doesn't start: $("$tools/bin/runc" --version 2>&1 | tail -n 1)"

if [[ ! -x $tools/bin/kubelet ]]; then
  echo "e2e-pods: building the kubelet of Kubernetes $version, which takes minutes"
  # The pinned tools don't build it, so that their sums lack some of its modules.
  cp hack/tools/kubernetes/go.mod "$tools/kubelet.mod"
  cp hack/tools/kubernetes/go.sum "$tools/kubelet.sum"
  number=${version#v}
  (cd hack/tools/kubernetes && CGO_ENABLED=0 go build -mod=mod -modfile="$tools/kubelet.mod" \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=${number%%.*} -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<< "$number")" \
    -o "$tools/bin/kubelet" k8s.io/kubernetes/cmd/kubelet)
fi

KANDEV_E2E_TOOLS=$tools go test -count=1 -v -timeout 15m -run TestPods ./test/e2e
