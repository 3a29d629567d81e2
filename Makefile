# Every target does its own set-up: a machine needs Go and make, and gcc for the race detector.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT   := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
FUZZTIME    ?= 5s
COUNT       ?= 20
ORDERS      ?= 1000000
SOAK        ?= 20s
SEED        ?= 1
KILLS       ?= 200
LIVE        ?= 5000000

# The modules beside the library's own. Each has its dependencies to itself.
MODULES := timewheel/ttlcache timewheel/dashboard durable metrics metrics/grafana test/soak test/browser examples bench bench/durable

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## A million orders through the wheel, with the ledger that must balance
	$(GO) run ./examples/orders -generate $(ORDERS)

.PHONY: test
test: ## All tests, in every module, but those in a browser
	$(GO) test ./...
	@for m in $(filter-out test/browser,$(MODULES)); do echo "== $$m"; (cd $$m && GOWORK=off $(GO) test ./...); done

.PHONY: demo-dashboard
demo-dashboard: ## Two busy wheels, and the page that shows them: open the address it prints
	$(GO) run ./examples/dashboard

.PHONY: test-browser
test-browser: ## The dashboard in a real browser: installs Chromium if there is none
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium fonts-liberation fonts-dejavu-core; }
	cd test/browser && GOWORK=off CHROMIUM=$$(command -v chromium) $(GO) test -timeout 8m ./...

.PHONY: check
check: fmt vet lint race core-386 fuzz examples soak test-browser ## What must be green besides the tests

.PHONY: fmt
fmt: ## Fail if a file is not formatted
	@files=$$(git ls-files '*.go' | xargs -r gofmt -l); \
		if [ -n "$$files" ]; then echo "not formatted:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet, in every module
	$(GO) vet ./...
	@for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) vet ./...); done

.PHONY: lint
lint: ## staticcheck, in every module
	GOWORK=off $(GO) run $(STATICCHECK) ./...
	@for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) run $(STATICCHECK) ./...); done

.PHONY: race
race: ## The tests of the library and the examples under the race detector
	$(GO) test -race ./...
	cd timewheel/ttlcache && GOWORK=off $(GO) test -race -short ./...
	cd durable && GOWORK=off $(GO) test -race -short ./...
	cd timewheel/dashboard && GOWORK=off $(GO) test -race ./...
	cd metrics && GOWORK=off $(GO) test -race ./...
	cd test/soak && GOWORK=off $(GO) test -race -short ./...
	cd examples && GOWORK=off $(GO) test -race -short ./...

.PHONY: race-many
race-many: ## The tests of the library under the race detector, COUNT times in a row
	$(GO) test -race -count=$(COUNT) -timeout 60m ./...

.PHONY: core-386
core-386: ## The tests of the library on a 32-bit machine
	GOARCH=386 CGO_ENABLED=0 $(GO) test -short ./...

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME
	@for d in timewheel durable examples/orders; do \
		for f in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]+' $$d/*_test.go | sed 's/func //' | sort -u); do \
			echo "== $$d $$f"; $(GO) test ./$$d -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME); \
		done; \
	done

.PHONY: soak
soak: ## All verbs at random and full speed for SOAK, with an account of its own; SEED is what is drawn from
	$(GO) run ./test/soak -for $(SOAK) -seed $(SEED)

.PHONY: crashes
crashes: ## Kill a process that works on a durable store, KILLS times
	cd durable && GOWORK=off DURABLE_KILLS=$(KILLS) $(GO) test -run TestCrash_killed -v -timeout 30m .

.PHONY: damage
damage: ## Damage every byte and file of a durable store, or of large files 2,000; half an hour
	cd durable && GOWORK=off DURABLE_DAMAGE=all $(GO) test -run TestDamage_ -v -timeout 120m .

.PHONY: churn
churn: ## LIVE durable tasks through ten times as many cycles of add and remove; an hour
	cd durable && GOWORK=off DURABLE_CHURN=$(LIVE) $(GO) test -run TestChurn_ -v -timeout 120m .

.PHONY: bench-durable
bench-durable: ## Measure package durable beside its peers: writes bench/durable/RESULTS.md
	cd bench/durable && GOWORK=off $(GO) run . -out .

.PHONY: mutate
mutate: ## Mutation testing of the library; half an hour
	bash test/mutate.sh

.PHONY: examples
examples: ## Build and run every example
	@for e in basic shutdown heartbeat cache; do echo "== $$e"; $(GO) run ./examples/$$e; done
	$(GO) run ./examples/dashboard -addr 127.0.0.1:0 -for 2s
	$(GO) run ./examples/orders -in examples/orders/testdata/orders.jsonl

.PHONY: cover
cover: ## Statement coverage of the library
	$(GO) test -coverpkg=./timewheel/...,./pool/...,./internal/... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: bench
bench: ## Measure the wheel beside its peers: writes bench/RESULTS.md and the plots
	cd bench && GOWORK=off $(GO) run . -out .

.PHONY: bench-quick
bench-quick: ## The same in under two minutes, smaller; prints the tables
	cd bench && GOWORK=off $(GO) run . -quick

.PHONY: bench-caches
bench-caches: ## Measure the cache beside its peers: writes bench/CACHES.md
	cd bench && GOWORK=off $(GO) run . -caches -out .

.PHONY: bench-compare
bench-compare: ## The microbenchmarks of this tree against another revision: make bench-compare BASE=rev
	@test -n "$(BASE)" || { echo "usage: make bench-compare BASE=<rev>"; exit 2; }
	@dir=$$(mktemp -d); trap 'git worktree remove --force "$$dir/base"; rm -rf "$$dir"' EXIT; \
		git worktree add --quiet --detach "$$dir/base" "$(BASE)"; \
		for i in 1 2 3 4 5 6; do \
			(cd "$$dir/base" && $(GO) test -run '^$$' -bench . -benchtime 0.3s ./timewheel ./pool) >> "$$dir/base.txt"; \
			$(GO) test -run '^$$' -bench . -benchtime 0.3s ./timewheel ./pool >> "$$dir/head.txt"; \
		done; \
		$(GO) run $(BENCHSTAT) base="$$dir/base.txt" head="$$dir/head.txt"
