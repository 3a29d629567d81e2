# Every target does its own set-up: a machine needs Go and make, and gcc for the race detector.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO          ?= go
# The newest staticcheck wants Go 1.26, and the one before does not know generic methods of 1.26.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@$(shell $(GO) version | grep -q "go1[.]25" && echo v0.7.0 || echo v0.8.2)
BENCHSTAT   := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
OLDEST_GO   := go1.25.5
FUZZTIME    ?= 5s
COUNT       ?= 20
ORDERS      ?= 1000000
SOAK        ?= 20s
FOR         ?= 20s
EVERY       ?= 16
SEED        ?= 1
KILLS       ?= 200
LIVE        ?= 5000000
CHAOS       ?= 2h
HISTORIES   ?= 300
MUTANTS     ?= 1/1
HUNT        ?= 3600
INCIDENTS   ?=
LOAD        ?= 10
PARTS       ?= bench bench-caches bench-durable bench-cluster

# Every module is in go.work, so one go command works on all of them. LIBRARY is what is published.
LIBRARY := ./... ./ttlcache/... ./dashboard/... ./durable/... ./durable/pebble/... ./durable/postgres/... \
	./metrics/... ./otel/... ./cmd/timewheel/...
ALL     := $(LIBRARY) ./examples/... ./checks/... ./bench/...

# CONCURRENT and ENGINES are the packages that start goroutines, but for the stores, which take long under the race detector. Of
# package durable RACES are the tests in which most goroutines meet; the others have few that these have not.
CONCURRENT := ./... ./ttlcache/... ./dashboard/...
ENGINES    := ./durable/engine/... ./durable/enginetest
RACES      := Contract|History|Simulation|AtTheSameTime|atTheSameTime|Shutdown|Stop|Crash|Cancel|Wait|whileTasksChange|ofAllNodes

# TEST runs tests. Those that every change must pass are in short mode, and nightly has all of each. go vet is a
# target of its own. Package durable takes seven minutes while the other packages run, on two cores.
TEST := $(GO) test -vet=off -timeout 20m

# again is a command that downloads, which is called up to five times until it succeeds: the go command itself gives
# up at the first download that fails, and apt-get does not.
again = for pause in 1 2 4 8 no; do \
		if $(1) >/dev/null; then break; elif [ $$pause = no ]; then exit 1; fi; \
		echo "trying again in $$pause s"; sleep $$pause; \
	done

# install installs packages of Debian.
install = sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
	$$sudo apt-get update -qq; \
	$$sudo apt-get install -y -qq $(1)

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# demo-run builds an example and runs it with the arguments, in the place of the shell. Ctrl-C then reaches only make and the
# example, and no `go run` that fails at it. Make waits for the report of the example and ends without an error message.
demo-run = $(GO) build -o bin/$(1) ./examples/$(1); exec bin/$(1) $(2)

.PHONY: demo
demo: ## A million orders through the wheel, with the ledger that must balance
	@echo "Building the demo; on a fresh machine Go downloads the modules first ..."
	@$(call demo-run,orders,-n $(ORDERS))

.PHONY: demo-shop
demo-shop: postgres ## A shop of several processes on one PostgreSQL, which are killed at random: its stock must balance
	@$(call demo-run,shop)

.PHONY: test
test: ## The tests of the library and of the examples; those on PostgreSQL only if it is installed
	@echo "Testing the library; on a fresh machine Go downloads the modules first ..."
	@$(call again,$(GO) list -deps -test $(LIBRARY) ./examples/...)
	@$(TEST) -short -p 4 $(LIBRARY) ./examples/...

.PHONY: demo-dashboard
demo-dashboard: ## Two busy wheels and a durable scheduler, the page that shows them, and buttons for trouble: open the addresses it prints
	@$(call demo-run,dashboard)

# What has -count=1 reads files of other modules, whose changes the cache of go test does not notice.
.PHONY: test-checks
test-checks: postgres ## The tests of what is not the library: histories, soak, Grafana's queries, the alerts, the release, the words, the figures, the benchmarks
	POSTGRES_REQUIRED=1 $(TEST) -short -p 4 -count=1 $$($(GO) list ./checks/... | grep -v /checks/browser) ./bench/...

.PHONY: test-browser
test-browser: postgres ## The dashboard in a real browser: CHROMIUM, or one that is installed if there is none; AXE is axe.min.js
	@chromium="$(CHROMIUM)"; \
		for name in chromium chromium-browser google-chrome; do \
			test -n "$$chromium" || chromium=$$(command -v $$name || true); \
		done; \
		if [ -z "$$chromium" ]; then \
			$(call install,chromium fonts-liberation fonts-dejavu-core); \
			chromium=$$(command -v chromium); \
		fi; \
		CHROMIUM=$$chromium POSTGRES_REQUIRED=1 $(TEST) -timeout 8m ./checks/browser

.PHONY: postgres
postgres: ## Install Debian's package postgresql, if no server is installed
	@if ! command -v postgres >/dev/null && ! ls -d /usr/lib/postgresql/*/bin >/dev/null 2>&1; then \
		$(call install,postgresql); \
	fi

.PHONY: pgbouncer
pgbouncer: ## Install Debian's package pgbouncer, if there is none; PGBOUNCER is another
	@if [ -z "$(PGBOUNCER)" ] && ! command -v pgbouncer >/dev/null && [ ! -x /usr/sbin/pgbouncer ]; then \
		$(call install,pgbouncer); \
	fi

.PHONY: histories
histories: postgres ## HISTORIES of two nodes, and a tenth of it on PostgreSQL, checked with porcupine from SEED on
	POSTGRES_REQUIRED=1 $(GO) test -v -timeout 120m ./checks/histories -histories $(HISTORIES) -seed $(SEED)

.PHONY: check
check: fetch fmt vet lint ## What every change must pass besides the tests: twenty minutes with them
	@$(MAKE) --no-print-directory -j2 -O test-browser check-rest

# The browser waits more than it works.
.PHONY: check-rest
check-rest:
	@$(MAKE) --no-print-directory test-checks
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory examples
	@$(MAKE) --no-print-directory release-check

.PHONY: nightly
nightly: night-tests night-race night ## What takes longer than a change should wait: all tests, and what draws at random; about two hours

# The workflow runs each night-* target on a runner of its own.
.PHONY: night-tests
night-tests: fetch-all vet-all test-all test-old test-postgres core-386

.PHONY: night-race
night-race: race-all

# What draws from a seed has another one each day. The long single-threaded checks run next to the others.
.PHONY: night
night: postgres
	$(MAKE) -j2 night-walks night-long SEED=$$(date +%Y%j)

.PHONY: night-walks
night-walks:
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) soak SOAK=5m
	$(MAKE) interleave FOR=10m
	$(MAKE) histories HISTORIES=5000
	$(MAKE) crashes
	$(MAKE) chaos CHAOS=10m
	$(MAKE) incidents
	$(MAKE) alerts
	$(MAKE) churn LIVE=300000
	$(MAKE) peers

.PHONY: night-long
night-long:
	$(MAKE) zones
	$(MAKE) damage
	$(MAKE) mutate MUTANTS=$$(( $(SEED) % 10 + 1 ))/10

.PHONY: fetch
fetch: ## Download what the tests and the tools need
	@$(call again,$(GO) list -deps -test $(ALL))
	@$(call again,$(GO) run $(STATICCHECK) -version)

.PHONY: fetch-all
fetch-all: fetch
	@for os in windows darwin; do $(call again,GOOS=$$os $(GO) list -deps -test $(ALL)); done
	@$(call again,GOTOOLCHAIN=$(OLDEST_GO) $(GO) list -deps -test $(LIBRARY))

.PHONY: fmt
fmt: ## Fail if a file is not formatted
	@files=$$(git ls-files '*.go' | xargs -r gofmt -l); \
		if [ -n "$$files" ]; then echo "not formatted:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet, in every module
	$(GO) vet $(ALL)

.PHONY: vet-all
vet-all: ## go vet of the library for the systems that are not at hand
	@for os in windows darwin; do echo "== $$os"; CGO_ENABLED=0 GOOS=$$os $(GO) vet $(LIBRARY); done

.PHONY: test-all
test-all: postgres pgbouncer ## All tests, none of them in short mode
	POSTGRES_REQUIRED=1 $(TEST) -count=1 -timeout 30m $(LIBRARY) ./examples/... ./checks/histories ./checks/soak ./checks/mutants ./bench/...

.PHONY: test-old
test-old: postgres ## The short tests with the oldest version of Go that is supported
	GOTOOLCHAIN=$(OLDEST_GO) $(TEST) -short -count=1 $(LIBRARY)

.PHONY: test-postgres
test-postgres: pgbouncer ## The short tests of durable/postgres on PostgreSQL 14 to 18: downloads them; ten minutes
	bash test/postgres.sh

.PHONY: lint
lint: ## staticcheck, in every module
	$(GO) run $(STATICCHECK) $(ALL)

.PHONY: race
race: ## The short tests of what starts goroutines under the race detector
	$(TEST) -race -short $(CONCURRENT)
	@$(MAKE) --no-print-directory -j2 -O race-durable race-engines

# These run in virtual time, so they may share the machine.
.PHONY: race-durable race-engines
race-engines:
	$(TEST) -race -short $(ENGINES)
race-durable:
	$(TEST) -race -short -run '$(RACES)' ./durable

.PHONY: race-all
race-all: postgres ## All short tests under the race detector, and all tests of the wheel
	$(TEST) -race -short -count=1 -timeout 30m $(LIBRARY) ./examples/... ./checks/soak ./checks/histories
	$(TEST) -race -count=1 -timeout 30m ./...

.PHONY: race-many
race-many: ## The tests of the library under the race detector, COUNT times in a row
	$(TEST) -race -count=$(COUNT) -timeout 60m ./...

.PHONY: hunt
hunt: postgres pgbouncer ## Look for tests that fail without a defect: all short tests in a loop for HUNT seconds under a LOAD
	POSTGRES_REQUIRED=1 bash test/hunt.sh $(HUNT) $(LOAD) $(LIBRARY) ./examples/... ./checks/histories ./checks/soak

.PHONY: core-386
core-386: ## The tests of the library on a 32-bit machine
	GOARCH=386 CGO_ENABLED=0 $(TEST) -short -count=1 ./...

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME
	@for d in timewheel durable durable/internal/task durable/pebble cmd/timewheel/internal/serve; do \
		for f in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]+' $$d/*_test.go | sed 's/func //' | sort -u); do \
			echo "== $$d $$f"; $(GO) test ./$$d -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME); \
		done; \
	done

.PHONY: soak
soak: ## All verbs at random and full speed for SOAK, with an account of its own; SEED is the seed
	$(GO) run ./checks/soak -for $(SOAK) -seed $(SEED)

.PHONY: interleave
interleave: ## The concurrent tests while one statement in EVERY yields the processor, in rounds for FOR, from SEED on
	$(GO) run ./checks/interleave -for $(FOR) -seed $(SEED) -every $(EVERY)

.PHONY: crashes
crashes: ## Kill a process that works on a durable store, KILLS times
	DURABLE_KILLS=$(KILLS) $(GO) test -run TestCrash_killed -v -timeout 30m ./durable/pebble

.PHONY: chaos
chaos: postgres ## Kill, pause and cut off processes on PostgreSQL for CHAOS: writes chaos.txt
	CHAOS=$(CHAOS) CHAOS_REPORT=$(CURDIR)/chaos.txt POSTGRES_REQUIRED=1 $(GO) test -count=1 -run 'TestChaos_|TestContract_' -v -timeout 4h ./durable/postgres

.PHONY: incidents
incidents: postgres ## Replay incidents, all or those that match INCIDENTS, and check what page, metrics, alerts and command say
	$(GO) run ./checks/incidents -run '$(INCIDENTS)'

.PHONY: alerts
alerts: postgres ## Replay three incidents next to a Prometheus server, in which the alerts must fire and end; three minutes
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
		prometheus=$$(command -v prometheus || true); \
		if [ -z "$$prometheus" ]; then \
			(cd "$$dir" && chmod 755 . && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .); \
			prometheus=$$dir/usr/bin/prometheus; \
		fi; \
		$(GO) run ./checks/incidents -prometheus "$$prometheus" \
			-run '^(all workers stuck two|a kind always fails two|the database is away one)'

.PHONY: damage
damage: ## Damage every byte and file of a durable store, or of large files 2,000; half an hour
	DURABLE_DAMAGE=all $(GO) test -run TestDamage_ -v -timeout 120m ./durable/pebble

.PHONY: churn
churn: ## LIVE durable tasks through ten times as many cycles of add and remove; an hour
	DURABLE_CHURN=$(LIVE) $(GO) test -run TestChurn_ -v -timeout 120m ./durable/pebble

.PHONY: zones
zones: ## Calendars in every time zone, ten years of each; two minutes
	$(GO) test -count=1 -timeout 150m -run TestCalendar_ ./durable/internal/task -zones

.PHONY: redis
redis: ## Install Debian's package redis-server, if there is none
	@if ! command -v redis-server >/dev/null; then \
		$(call install,redis-server); \
	fi

# What a part has written stays if a later one fails.
.PHONY: bench-all
bench-all: fetch redis postgres ## Take every published figure again: PARTS one after the other, on a machine that does nothing else; hours
	@took() { printf '%-14s took %d h %02d min %02d s' "$$1" $$(($$2 / 3600)) $$(($$2 / 60 % 60)) $$(($$2 % 60)); }; \
		SECONDS=0; report=; set -- $(PARTS); \
		for part in $(PARTS); do \
			began=$$SECONDS; \
			echo "== $$part"; \
			if ! $(MAKE) --no-print-directory $$part; then \
				echo "$$report$$part has failed after $$((SECONDS - began)) s, and the parts after it have not run." >&2; \
				echo "To continue there: make bench-all PARTS='$$*'" >&2; \
				exit 1; \
			fi; \
			report+=$$(took "$$part" $$((SECONDS - began)))$$'\n'; \
			shift; \
		done; \
		echo "$$report$$(took bench-all $$SECONDS)"; \
		echo "Now write the figures into the prose: go test ./checks/figures -fix"

.PHONY: bench-durable
bench-durable: redis postgres ## Compare package durable with its peers: writes bench/durable/RESULTS.md
	cd bench/durable && $(GO) run . -out .

.PHONY: bench-cluster
bench-cluster: postgres ## Compare durable/postgres with its peers: writes bench/CLUSTER.md; two hours
	cd bench && $(GO) run ./cluster -out CLUSTER.md

.PHONY: serve-load
serve-load: ## Put 10,000 tasks a second through timewheel serve, and report how late the webhooks are; needs a quiet machine
	$(GO) run ./checks/serve

.PHONY: peers
peers: ## The tests of other timer libraries, on this one: downloads them; three minutes
	PEERS=1 $(GO) test -count=1 -v -timeout 30m ./checks/peers

.PHONY: mutate
mutate: ## Mutation testing of the library, by lists of mistakes; of these MUTANTS, such as the second of four parts, 2/4
	$(GO) run ./checks/mutants -part $(MUTANTS)

.PHONY: mutate-operators
mutate-operators: ## Mutation testing of the library, one operator at a time; one to two hours
	bash test/mutate.sh

.PHONY: examples
examples: ## Build and run every example
	@for e in basic shutdown heartbeat cache; do echo "== $$e"; $(GO) run ./examples/$$e; done
	$(GO) run ./examples/dashboard -addr 127.0.0.1:0 -for 2s
	$(GO) run ./examples/orders -n 20000

.PHONY: cover
cover: ## Statement coverage of the library
	$(GO) test -coverpkg=./timewheel/...,./pool/...,./internal/... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: bench
bench: ## Compare the wheel with its peers: writes bench/RESULTS.md and the plots
	cd bench && $(GO) run . -out .

.PHONY: bench-quick
bench-quick: ## The same in under two minutes, smaller; prints the tables
	cd bench && $(GO) run . -quick

.PHONY: bench-caches
bench-caches: ## Compare the cache with its peers: writes bench/CACHES.md
	cd bench && $(GO) run . -caches -out .

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

.PHONY: release-check
release-check: ## Get every published module as its users would, from packed files, and build and run a program with it
	$(GO) run ./checks/release check

.PHONY: tidy
tidy: ## go mod tidy, in every module, as if the version they require of each other were published
	$(GO) run ./checks/release tidy

.PHONY: sizes
sizes: ## What each published module adds to a program: writes the table of docs/design.md
	$(GO) run ./checks/release sizes

.PHONY: archives
archives: ## Archives of the command for linux, macOS and windows with their checksums, into OUT (bin/archives)
	$(GO) run ./checks/release archive $(or $(OUT),bin/archives)

.PHONY: release
release: ## Commit and tag a release, root first, and push nothing: make release VERSION=v0.1.0
	@test -n "$(VERSION)" || { echo "usage: make release VERSION=v0.1.0"; exit 2; }
	$(GO) run ./checks/release tag $(VERSION)
