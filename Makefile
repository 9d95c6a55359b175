# Sandgate. `make help` lists the targets; everything else is a variable you may set.

SHELL := /bin/bash
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GUEST   := sandbox/guest/embedded/sandgate-guest

# The linter is pinned and built from source once, outside of the tree.
GOLANGCI_VERSION := v2.15.0
TOOLS            ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sandgate-tools
GOLANGCI         := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)

.PHONY: help build guest test lint fmt fuzz bench demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: guest ## bin/sandgate: one static program, with the guest embedded
	CGO_ENABLED=0 go build -tags guestbin -ldflags "-s -w -X github.com/sandgate/sandgate/cmd/sandgate/cli.version=$(VERSION)" -o bin/sandgate ./cmd/sandgate

# The guest is stripped and built without paths: its digest names it on disk,
# so the same source has to give the same bytes everywhere.
guest: ## the program that is PID 1 in every sandbox
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o $(GUEST) ./cmd/sandgate-guest

test: ## all tests; as root on Debian it installs what they need first
	scripts/test.sh

lint: $(GOLANGCI) ## formatting, vet, the linters and the dependency rule
	CGO_ENABLED=0 $(GOLANGCI) run ./...

fmt: $(GOLANGCI) ## format the code, imports in groups
	$(GOLANGCI) fmt

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once (about two minutes)"
	@mkdir -p $(TOOLS)/build
	CGO_ENABLED=0 GOBIN=$(TOOLS)/build GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/build/golangci-lint $@

FUZZTIME ?= 10s
fuzz: ## every fuzz target, FUZZTIME each
	scripts/fuzz.sh $(FUZZTIME)

bench: build ## speed against Docker and OpenSSH, in one interleaved run
	bench/run.sh

demo: ## a sandbox of your own, over ssh
	go run ./cmd/sandgate demo

clean: ## remove what the build made
	rm -rf bin $(GUEST)
