# SPDX-License-Identifier: Apache-2.0
#
# "make help" lists what there is. Everything here works without a terminal.

GO      ?= go
DESTDIR ?=
PREFIX  ?= /usr/local
HOOKS   ?= /etc/libvirt/hooks/qemu.d
CONNECTORS = $(PREFIX)/libexec/volferry/connectors

MODULE  := github.com/volferry/volferry
# The version of programs, packages and man pages: the one in VERSION, or 1.2.3+14.gabcdef for the
# fourteenth commit after VERSION was changed. Changes that are not committed add .dirty.
VERSION := $(shell .ci/version)
LDFLAGS := -s -w -X $(MODULE)/internal/version.Version=$(VERSION)
# Packages and releases name no path of the machine that built them. CI builds none: without this
# what is compiled for the programs is compiled for the linter and the tests too.
# The version says the commit, and Go's own stamp differs between two clones of it.
TRIMPATH ?= -trimpath -buildvcs=false

NFPM_VERSION    := 2.45.2

# For what makes much garbage: a quarter of the collections, for more memory, which has a bound.
FEW_GC := GOGC=400 GOMEMLIMIT=6GiB

LINT         := bin/golangci-lint
LINT_VERSION := 2.15.0

# Packages whose tests start a real libvirtd. Everything else but the
# end-to-end tests is a unit test.
REAL_LIBVIRT := ./daemon/internal/libvirt ./test/lab/...
NOT_UNIT     := $(MODULE)/(daemon/internal/libvirt$$|test/confined$$|(test/lab|test/machine|test/e2e|test/hosts|test/storage|test/power|test/units|test/registry|test/web|test/demo|test/bench/data)(/|$$))

# Packages with simulations. make test runs some of their trials (-short); make
# test-simulation runs all of them.
SIMULATED := ./daemon/internal/uplink ./daemon/internal/attach ./daemon/internal/instance ./daemon/internal/volume ./daemon/internal/migrate ./daemon/internal/migrate/plans ./registry/internal/sharedmove/... ./registry/internal/drain ./registry/internal/store

# Their tests that choose by chance, and make a trial for each of some seeds. A walk with a
# database takes as long as some dozens of trials of the others.
BY_CHANCE       := ^Test(NoWriteIsLostWhateverHappensAndWhen|NothingIsLeftHalfDoneWhateverHappens|AVolumeHasOneSizeWhateverHappens|HoweverAMoveGoesEveryWriteIsThereAtItsEnd|NothingIsLeftOf(AMove|ADrain)HoweverItGoes)$$
BY_CHANCE_MANY  := ./daemon/internal/attach ./daemon/internal/instance ./daemon/internal/volume ./daemon/internal/migrate
BY_CHANCE_FEWER := ./registry/internal/sharedmove/... ./registry/internal/drain

# The longest come first: what is last is at work alone.
LONG_UNIT := ./daemon/internal/qemuimg $(SIMULATED) ./daemon/internal/copy ./ctl/internal/command ./internal/treetest
UNIT       = $(LONG_UNIT) $$($(GO) list ./... | grep -vE '^$(NOT_UNIT)' | grep -vxF "$$($(GO) list $(LONG_UNIT))")

# Where goroutines share most. make test has the race detector for these alone, since everything is
# compiled once more for it; make test-race has it for all.
RACED := ./daemon/internal/op ./daemon/internal/request ./daemon/internal/uplink ./daemon/internal/hv/...

SCRIPTS := .ci/run .ci/promtool .ci/version .ci/vulncheck test/debian.sh test/lab/install.sh test/machine/install.sh test/machine/docs.sh test/vm/install.sh test/vm/usermode/install.sh test/confined/host.sh test/clusterfs/install.sh test/storage/devices.sh test/storage/nvme.sh packaging/libvirt-hook/volferry-guard \
	packaging/build.sh packaging/scripts/postinst.sh packaging/scripts/prerm.sh packaging/scripts/postrm.sh

.DEFAULT_GOAL := help
.NOTPARALLEL: # the kinds of test would slow each other down past their limits
.PHONY: help demo test test-all build lint shellcheck promtool test-unit test-race test-simulation test-seeds test-mutations test-registry-short test-registry test-conformance test-e2e test-units test-releases test-confined test-hosts test-storage test-storage-all test-live-shared test-clusterfs test-power test-upgrade test-crash soak test-web matrix-report kinds-report confined-report house bench bench-confined bench-engine bench-registry bench-growth \
	packages lint-packages install clean litestream lab ceph machine vm usermode clusterfs compiler chromium

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

# Plain commands, without a shell between: make passes its signals on to them.
demo: build ## Move a volume under a running guest and prove that no write was lost (root)
	@$(GO) build -o bin/demo ./test/demo
	@bin/demo

# Called from here, the tests with real guests leave out what takes long.
test: SHORT := -short
test: build lint test-unit test-registry-short test-conformance test-e2e test-hosts ## What CI runs: all kinds of tests, the long ones left to their own targets

# Side by side they would slow each other down past their limits.
test-all: build lint test-unit test-race test-simulation test-seeds test-mutations test-registry test-conformance test-e2e test-units test-releases test-hosts test-storage-all test-live-shared test-clusterfs test-power test-upgrade test-crash test-web ## Everything, of test-crash what it has time for; most of a day on two idle cores (root)

build: ## Build the three programs and the connectors into bin/
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' -o bin/volferryd ./daemon
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' -o bin/connectors/ ./daemon/connectors/...
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' -o bin/volferry-registry ./registry
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' -o bin/volferryctl ./ctl

lint: shellcheck ## Check style, import rules and scripts; known vulnerabilities, where that can be
	@[ "$$($(LINT) version --short 2>/dev/null)" = "$(LINT_VERSION)" ] || \
		GOBIN='$(CURDIR)/bin' CGO_ENABLED=0 $(GO) install -ldflags='-s -w' github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION)
	$(FEW_GC) $(LINT) run ./...
	@.ci/vulncheck

shellcheck:
	@if command -v shellcheck >/dev/null; then shellcheck -x $(SCRIPTS); \
	else echo 'shellcheck is not installed: the scripts were not checked'; fi

test-unit: compiler lab promtool ## Unit tests, some trials of each simulation, the tree itself; where goroutines share most with the race detector
	$(FEW_GC) $(GO) test $(JSON) -short -timeout 20m $(UNIT)
	CGO_ENABLED=1 $(GO) test $(JSON) -race -short -timeout 20m $(RACED)

test-race: compiler lab promtool ## Unit tests and the hypervisor's conformance suite with the race detector
	CGO_ENABLED=1 $(GO) test $(JSON) -race -short -timeout 40m $(UNIT)
	CGO_ENABLED=1 $(GO) test $(JSON) -race $(SHORT) -count=1 -timeout 30m $(REAL_LIBVIRT)

test-simulation: compiler ## All trials of the simulations on the fakes: every call fails, dies and is interrupted
	$(GO) test $(JSON) -timeout 40m $(SIMULATED) ./daemon/internal/qemuimg

# SEED is the first one: SEED=20000 makes others than before.
SEEDS ?= 10000
test-seeds: ## SEEDS (10000) seeds of the simulations that choose by chance, in two minutes on two idle cores; says how many they were; SEED=N begins with seed N
	@mkdir -p build
	@VOLFERRY_SEED=$(SEED) VOLFERRY_SEEDS=$$(( $(SEEDS) / 40 )) $(GO) test -json -count=1 -timeout 40m -run '$(BY_CHANCE)' $(BY_CHANCE_FEWER) >build/seeds-fewer.json & \
		VOLFERRY_SEED=$(SEED) VOLFERRY_SEEDS=$$(( $(SEEDS) / 4 )) $(GO) test -json -count=1 -timeout 40m -p 1 -run '$(BY_CHANCE)' $(BY_CHANCE_MANY) >build/seeds-many.json; wait; \
		$(GO) run ./test/seeds --at-least $(SEEDS) build/seeds-many.json build/seeds-fewer.json

test-mutations: ## Mistakes in the code of ops, moves, pauses, attachments, instances, resizes and fences, one at a time: the simulation named for each finds it
	$(GO) test $(JSON) -v -count=1 -timeout 60m ./test/mutations

test-registry-short: build ## The registry program under SIGKILL, SIGSTOP, backups, full disks; a minute
	$(GO) test $(JSON) -v -count=1 -timeout 10m ./test/registry

test-registry: build litestream ## The same for longer: more than a minute of history, hundreds of deaths; and what Litestream restores of it
	VOLFERRY_REGISTRY=long $(GO) test $(JSON) -v -count=1 -timeout 20m ./test/registry

test-conformance: compiler lab ## The hypervisor's conformance suite and the lab, on a real libvirtd (root)
	$(GO) test $(JSON) $(SHORT) -count=1 -timeout 20m $(REAL_LIBVIRT)

test-e2e: build lab compiler ## Real guests through volferryctl, and the benchmark of moves in small (root)
	$(GO) test $(JSON) -v $(SHORT) -count=1 -timeout 75m -p 1 ./test/e2e ./test/bench/data

# VOLFERRY_UNITS_RUN is a pattern for the names of some of them.
test-units: build lab packages machine ## The same with each volferryd under the unit of its package, on a machine with systemd (root)
	$(GO) test $(JSON) -v -count=1 -timeout 75m ./test/units

# The QEMU of the backports is one that loses writes of a guest which runs while a job begins.
test-releases: ## The same on Debian 13, and on Debian 12 with its backports: libvirt 11, QEMU 10 (root)
	VOLFERRY_MACHINE_SUITE=trixie $(MAKE) test-units
	VOLFERRY_MACHINE_SUITE=bookworm-backports $(MAKE) test-units

# VOLFERRY_CONFINED_RUN is a pattern for the names of the tests; VOLFERRY_MACHINE_SUITE=trixie has Debian 13.
test-confined: build lab packages usermode ## Tests of test/e2e under the unit where AppArmor or SELinux confines the guests, on machines of user-mode Linux (root)
	$(GO) test $(JSON) -v $(SHORT) -count=1 -timeout 0 ./test/confined

# Of the tests on machines with the packages make test has the README's.
test-hosts: build lab promtool packages machine ## Several hosts and a registry over TLS, with real guests, the packages on machines with systemd, and the pages of docs/ word for word (root)
	@[ -n '$(SHORT)' ] || test/machine/docs.sh
	$(GO) test $(JSON) -v $(SHORT) -count=1 -timeout 45m -p 1 ./test/machine ./test/hosts

# VOLFERRY_STORAGE_RUN is a pattern for the names of the tests.
test-storage: build lab ceph vm usermode ## Volumes on logical volumes, thin ones, iSCSI multipath, NVMe/TCP, NFS and their connectors, in virtual machines: moves, lost paths, reused LUNs, dead servers, kills; and RBD images of a Ceph cluster (root)
	$(GO) test $(JSON) -v -count=1 -timeout 30m -run '^TestCephAVolumeGoesFromAndToImagesUnderARunningGuest$$' ./test/e2e
	$(GO) test $(JSON) -v -count=1 -timeout 0 ./test/storage

test-storage-all: test-storage ## The same, all tests with Ceph, and those of all kinds on the kernel of Debian 12; hours where the machine is emulated and its guests once more (root)
	$(GO) test $(JSON) -v -count=1 -timeout 120m -run '^TestCeph' ./test/e2e
	VOLFERRY_STORAGE_RUN='^TestStorage' $(GO) test $(JSON) -v -count=1 -timeout 0 -run '^TestVolumesOnNamespacesOfNVMe$$' ./test/storage

test-live-shared: build lab ## Volumes that move while all guests write to them: block by block in turn, under a lock, faster than the copy (root)
	VOLFERRY_LIVE_SHARED=1 $(GO) test $(JSON) -v -count=1 -timeout 30m -run 'GuestsWrite|WhileTheyDo|OutrunTheCopy|ByTheMirrorAndInRounds' ./test/hosts

test-clusterfs: build lab clusterfs ## Three nodes of a cluster filesystem write to a volume that moves (root)
	VOLFERRY_CLUSTERFS=1 $(GO) test $(JSON) -v -count=1 -timeout 20m -run '^TestThreeNodesOfAClusterFilesystem' ./test/hosts

# POWER is every how many writes between two flushes the power is cut: 1 is at each, and takes hours.
POWER ?= 10
test-power: build lab ## Cut the power at every flush that a move makes on ext4, XFS and btrfs, and between, by replay of what was written (root)
	VOLFERRY_POWER=$(POWER) $(GO) test $(JSON) -v $(SHORT) -count=1 -timeout 0 ./test/power/...

# The programs of the base (test/site/compatible.txt) are built of the clone's history.
test-upgrade: build lab packages machine ## Programs and packages of 0.1.0 against those of now: upgrades in the middle of moves, both orders (root)
	VOLFERRY_UPGRADE=all $(GO) test $(JSON) -v -count=1 -timeout 60m -run '^TestUpgrade' ./test/hosts

CRASH ?= 15s
SEED ?=
# The order of the tests follows from the seed, too. What it says last is of the tests that are none of its own: which of
# its own have run, make matrix-report says.
test-crash: build lab compiler ## Kill everything at steps of a move, in an order of chance: each of a hundred and forty tests has CRASH (15s) for it, and those that have not begun after 40 minutes, or 8 of those with several hosts, are left to another seed; CRASH=all strikes at every step, in many hours; SEED=N chooses as before (root)
	@export VOLFERRY_CRASH=$(CRASH) VOLFERRY_SEED=$(or $(SEED),$$(date +%s)); ended=0; \
		deadline() { [ $(CRASH) = all ] || expr $$(date +%s) + $$1 \* 60; }; \
		VOLFERRY_CRASH_UNTIL=$$(deadline 40) $(GO) test $(JSON) -v -count=1 -timeout 24h -shuffle=$$VOLFERRY_SEED -run '^(TestKill|TestLibvirtdThat|TestPowerOff|TestCancelsInTheMiddle|TestRootDetachAndVirshStart|TestAJournalThatTakesNothing|TestTheCopyThatIsKept|TestAStoppedGuestIsStarted|TestACancelAtEvery|TestACancelEndsThough|TestACompleteAtEvery|TestACompleteEndsThough|TestAGuestThatSomebodyResumes|TestAHangOf|TestWhatAStranger|TestARegistryOfBefore|TestAnAttachElsewhereAtEvery|TestWhatHappensInTheFold|TestMigrationWithoutTheRegistry|TestAServerThatIsKilled)' ./test/e2e || ended=1; \
		VOLFERRY_CRASH_UNTIL=$$(deadline 8) $(GO) test $(JSON) -v -count=1 -timeout 24h -shuffle=$$VOLFERRY_SEED -run '^TestKill' ./test/hosts || ended=1; \
		$(GO) run ./test/matrix/report --left-by test-crash; exit $$ended

SOAK ?= 1h
KILLS ?=
soak: build lab ## Move, cancel, stop, shelve and kill at random, on several guests and then on two hosts, for SOAK (1h) each, until KILLS moves were struck by a SIGKILL, or to the first lost write; SEED=N chooses as before (root)
	VOLFERRY_SOAK=$(SOAK) VOLFERRY_KILLS=$(KILLS) VOLFERRY_SEED=$(SEED) $(GO) test $(JSON) -v -count=1 -timeout 0 -p 1 -run '^TestSoak' ./test/e2e ./test/hosts

test-web: build chromium ## The page of volferryctl web in a headless Chromium
	$(GO) test -v $(JSON) -count=1 -timeout 15m ./test/web

# JSON=-json has a test target print what this reads, behind a line about the machine: make test-e2e JSON=-json >build/e2e.json
ifneq ($(JSON),)
$(info $(shell $(GO) run ./test/matrix/report --machine '$(VERSION)'))
endif
PAGE ?= docs/evidence/failure-matrix-runs.md
matrix-report: ## What the tests said of each row of the failure matrix, from the files in RESULTS, and docs/evidence/failure-matrix-runs.md, or PAGE, of it; SINCE is such a page of runs whose files are gone
	@$(GO) run ./test/matrix/report --page '$(PAGE)' --since '$(SINCE)' $(RESULTS)

kinds-report: ## From which kind of storage to which those tests moved volumes: docs/evidence/storage-matrix.md of the files in RESULTS; SINCE is such a page of runs whose files are gone
	@$(GO) run ./test/kinds/report --since '$(SINCE)' $(RESULTS)

confined-report: ## What the tests of confined guests said, and the owners and labels of images: docs/evidence/confined-guests.md of the files in RESULTS, of test-confined with each release and of test-e2e
	@$(GO) run ./test/confined/report --page docs/evidence/confined-guests.md $(RESULTS)

house: ## Measure structure and prose of the sources: what a new maintainer has to learn. HOUSE='--sample 60' prints comments, changelog entries and titles by lot
	@$(GO) run ./test/house $(HOUSE)

# The flags are in BENCH, --full among them: go run ./test/bench/data --help.
bench: build lab ## Moves by Volferry and by other tools, side by side, in less than ten minutes, with tables and plots in build/bench (root)
	$(GO) run ./test/bench/data $(BENCH)

bench-confined: build lab packages usermode ## The same by Volferry alone, with a guest that AppArmor confines and with one that it does not, on a machine of user-mode Linux; BENCH has flags (root)
	$(GO) run ./test/bench/data --confined $(BENCH)

bench-engine: ## Benchmarks of the copy engine, the journal and the registry's parts
	$(GO) test -run '^$$' -bench . -benchmem ./daemon/... ./registry/... ./internal/...

bench-registry: build ## The load of a whole site on a registry, beside an etcd that makes the same changes: twenty minutes, with the raw numbers in build/bench-registry.jsonl (root)
	cd test/bench/etcd && CGO_ENABLED=0 $(GO) build -trimpath -o '$(CURDIR)/bin/bench-etcd' .
	$(GO) run ./test/bench/registry --etcd bin/bench-etcd --results build/bench-registry.jsonl

# FULL=1 adds the large sizes. go run ./test/bench/growth --plot FILE... draws the raw results of other days once more.
bench-growth: build lab ## How the cost of moves, volumes, folds, attachments and history grows with their size, with a table and a plot in build/bench-growth (root)
	$(GO) run ./test/bench/growth $(if $(FULL),--full)

packages: build ## deb and rpm of the three programs into dist/
	@[ -x bin/nfpm ] || GOBIN='$(CURDIR)/bin' $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@v$(NFPM_VERSION)
	packaging/build.sh bin/nfpm '$(VERSION)' "$$(git log -1 --format=%ct)" dist

lint-packages: packages ## What lintian and rpmlint say of the packages, where they are installed
	@if command -v lintian >/dev/null; then lintian --fail-on error,warning dist/*.deb; else echo 'lintian is not installed: the debs were not checked'; fi
	@if command -v rpmlint >/dev/null; then rpmlint --strict --config packaging/rpmlint.toml dist/*.rpm; else echo 'rpmlint is not installed: the rpms were not checked'; fi

# The daemon is linked once more: the one in bin/ looks for connectors where the packages have them.
install: build ## Install programs, connectors and libvirt hook under DESTDIR and PREFIX
	CGO_ENABLED=0 $(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS) -X $(MODULE)/daemon/internal/connector.DefaultDir=$(CONNECTORS)' -o build/install/volferryd ./daemon
	install -d '$(DESTDIR)$(PREFIX)/sbin' '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(CONNECTORS)' '$(DESTDIR)$(HOOKS)'
	install -m 0755 build/install/volferryd bin/volferry-registry '$(DESTDIR)$(PREFIX)/sbin/'
	install -m 0755 bin/connectors/* '$(DESTDIR)$(CONNECTORS)/'
	install -m 0755 bin/volferryctl '$(DESTDIR)$(PREFIX)/bin/'
	install -m 0755 packaging/libvirt-hook/volferry-guard '$(DESTDIR)$(HOOKS)/'

clean: ## Remove what was built and downloaded
	rm -rf bin build dist .cache

# What the guests of tests and demo need, installed if missing.
lab:
	test/lab/install.sh

# The root of the machines on which tests install the packages, made if missing.
machine:
	test/machine/install.sh

# A small Ceph cluster, and the RBD driver of QEMU. Without root, or where the packages cannot be had, the
# tests say that they skip.
ceph:
	@[ -x /usr/bin/ceph-osd ] && [ -x /usr/bin/ceph-mon ] && [ -x /usr/bin/rbd ] && ls /usr/lib/*/qemu/block-rbd.so >/dev/null 2>&1 || { \
		echo 'installing what a Ceph cluster needs'; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ceph-mon ceph-osd ceph-common qemu-block-extra; } || \
		echo 'ceph could not be installed'

# Litestream, from a module of its own: ours does not get what it needs. Where that cannot be had, the test says that it skips.
litestream:
	@cd test/registry/litestream && CGO_ENABLED=0 $(GO) build -trimpath -o '$(CURDIR)/bin/litestream' github.com/benbjohnson/litestream/cmd/litestream || \
		{ rm -f '$(CURDIR)/bin/litestream'; echo 'Litestream could not be built'; }

# The root of virtual machines, made if missing.
vm:
	test/vm/install.sh

# The kernel and the image of machines of user-mode Linux, made if missing.
usermode:
	test/vm/usermode/install.sh

# What the nodes of a cluster filesystem are made of, made if missing.
clusterfs:
	test/clusterfs/install.sh

# Without root, or where the package cannot be had, the test says that it skips.
chromium:
	@command -v chromium >/dev/null || { \
		echo 'installing chromium for the page of volferryctl web'; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; } || \
		echo 'chromium could not be installed'

# What checks the alert rules, the dashboard and the metrics, and scrapes a site in a test,
# fetched if missing.
promtool:
	@.ci/promtool

# The race detector needs a C compiler; nothing else does.
compiler:
	@command -v gcc >/dev/null || { \
		echo 'installing gcc for the race detector'; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev; }
