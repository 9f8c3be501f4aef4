# Everything a developer does here. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tests: packages at once, and the limit of one package.
TEST_PARALLEL ?= 2
TEST_TIMEOUT  ?= 20m
# What `make test` tests, and further flags of go test: make test PACKAGES=./sdk/... TESTFLAGS='-run I5'
PACKAGES  ?= ./...
TESTFLAGS ?=
# How long each fuzz target runs.
FUZZTIME ?= 30s
# The image that `make docker-build` makes.
IMAGE ?= plugin-host:dev

DEVTOOLS := go run ./hack/devtools
# Puts the built tools on PATH and names the control plane's binaries to envtest.
USE_TOOLS := settings="$$($(DEVTOOLS) env)"; eval "$$settings"
# The Kubernetes version that the tools pin, as 1.37.2.
KUBE_VERSION = $(shell sed -n 's|^.*k8s.io/kubernetes v\([0-9.]*\).*|\1|p' hack/tools/kubernetes/go.mod)
# The commands and what the demo runs.
MAINS = $(shell go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' $(foreach dir,$(wildcard cmd test/demo),./$(dir)/...))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Tools

.PHONY: tools
tools: ## Build every developer tool once, into a folder outside the tree (KANDEV_TOOLS_DIR moves it)
	@$(DEVTOOLS) build

.PHONY: control-plane
control-plane: ## Build kube-apiserver, etcd and kubectl once (a KUBEBUILDER_ASSETS that has them is used instead)
	@$(DEVTOOLS) control-plane

.PHONY: postgres
postgres: ## Find PostgreSQL's server, or install it where that is possible (Debian, as root)
	@hack/postgres.sh

##@ Build

.PHONY: build
build: control-plane ## Build the binaries into ./bin, and the control plane that demo and tests run
	@mkdir -p bin
	CGO_ENABLED=0 go build -o bin/ $(MAINS)

.PHONY: docker-build
docker-build: ## Build the container image (IMAGE names it)
	docker build -t $(IMAGE) .

.PHONY: generate
generate: ## Regenerate protobuf Go, deepcopy, CRDs, RBAC, the chart's CRDs and what go:generate says
	@$(DEVTOOLS) build protoc-gen-go protoc-gen-go-grpc controller-gen buf
	@$(USE_TOOLS); hack/generate.sh

.PHONY: proto-baseline
proto-baseline: ## Take the wire as it is for what later changes must not break (at a release)
	@$(DEVTOOLS) build buf
	@$(USE_TOOLS); cd proto && buf build --exclude-source-info -o baseline.binpb

.PHONY: clean
clean: ## Remove what was built in the tree; the tools' folder outside it stays
	rm -rf bin

##@ Check

.PHONY: lint
lint: ## Run the linters on Go and protobuf, and compare the wire with the last release's
	@$(DEVTOOLS) build golangci-lint buf
	@$(USE_TOOLS); golangci-lint run ./...
	@$(USE_TOOLS); cd proto && buf lint && buf breaking --against baseline.binpb

.PHONY: verify
verify: ## Regenerate, lint, render everything, and demand that the tree is clean
	@$(DEVTOOLS) build kustomize helm helm4
	@$(MAKE) generate lint
	@$(USE_TOOLS); hack/render.sh $(KUBE_VERSION)
	go mod tidy -diff
	@hack/clean-tree.sh

# -count=1: go's cache of results knows what a test compiles and opens, not what it runs.
# Many suites here build binaries and run them, or render the charts with a tool.
.PHONY: test
test: control-plane postgres ## Run every test with the race detector on real parts: API server, SQLite, PostgreSQL, gRPC
	@$(DEVTOOLS) build kube-controller-manager kustomize helm helm4
	@$(USE_TOOLS); go test -race -count=1 -json -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PACKAGES) | go run ./hack/testreport $(if $(CI),-each)

.PHONY: e2e-pods
e2e-pods: control-plane ## Run plugins' pods on a real kubelet, where this machine allows it (Linux, as root); says why elsewhere
	@$(DEVTOOLS) build kube-controller-manager
	@$(USE_TOOLS); test/e2e/run.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: build postgres ## Measure; the output ends with lines "BENCH <name> <value> <unit>"
	@$(USE_TOOLS); go run ./test/bench

##@ Try

.PHONY: demo
demo: build ## Run the main job on a real control plane: grant, use, revoke; checks each step
	@$(USE_TOOLS); bin/demo

.PHONY: run
run: build ## The demo's world, left running, with how to talk to it
	@$(USE_TOOLS); bin/demo -keep
