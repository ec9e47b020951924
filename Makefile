# make demo             as many connections as this machine allows, and three pushes to all of them
# make dist             what is shipped, in target/dist: the program without symbols, and its symbols apart
# make package          dist, and of it a .deb, a .rpm, checksums and the list of all crates (SBOM), in target/dist: docs/install.md (Go)
# make nfpm             the tool that makes packages, in target/nfpm (Go)
# make test             everything CI runs; ends with "N passed, N failed"
# make bench            the figures of docs/benchmarks.md, beside a plain program (two hours, on an idle machine)
# make bench-2m         two million connections, both ends, with pushes (20 GB of memory)
# make bench-1m-hash    a million connections with a larger connection hash (in a network namespace, without root)
# make bench-paired     two builds in turn, and each figure as a ratio; BEFORE=PROGRAM, PAIRED='--only SCENARIO'
# make bench-tuning     what kernel settings are worth: docs/tuning.md (some minutes a round)
# make soak             an hour at 500,000 connections with churn, pushes and pings: nothing lost, nothing grown
# make conformance      all 517 cases of the Autobahn test suite, on both drivers (Python 2.7; a quarter of an hour)
# make arena            all servers of arena/ under the same crowd, as a table and a page: docs/arena.md (hours)
# make arena-held       long polls, then server-sent events, 15,000 of them: arena-long-poll.md and arena-sse.md (minutes)
# make arena-smoke      builds every server of arena/ and checks that it keeps the contract (arena/README.md)
# make sim              simulates 100,000 random schedules of several shards, or an hour of them; prints what they reached.
#                       SEEDS=, MINUTES= and FROM= change that; SEED=7 replays one and prints every step.
#                       Before that 10,000 schedules of clusters: CLUSTER_SEEDS=
# make fuzz             every fuzz target for an hour each; MINUTES=, FUZZ='--target NAME' (nightly toolchain)
# make demo-cluster     three NATS servers, four nodes and as many clients as memory allows; a node and a NATS server are killed; CLUSTER='--clients 100000'
# make bench-cluster    the figures of docs/cluster.md: rates, fan-out, recovery and the rest (half an hour, with Go; CLUSTER='--only rates')
# make cluster-faults  three NATS servers and four nodes under faults, 20 runs of each: nothing acknowledged is lost (hours); FAULTS='--runs 1'
# make miri             wire, wheel and hub under Miri (nightly toolchain; half an hour)
# make deny             licences, advisories and sources of all dependencies
# make help             this list
#
# Options for the program behind a target:
#   make demo DEMO='--connections 100k'
#   make bench BENCH='--only broadcast-100k'
#   make soak SOAK='--connections 20k --minutes 2'
#   make package RUST_TARGET=x86_64-unknown-linux-musl
#   make arena ARENA='--only netty,myriad --connections 15k --rounds 3'

CARGO ?= cargo
PYTHON ?= python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
DEMO ?=
BENCH ?=
FUZZ ?=
TUNING ?=
BEFORE ?=
PAIRED ?= --only broadcast-100k --only sessions-100k
SOAK ?=
TEST ?=
CONFORMANCE ?=
FAULTS ?=
SEED ?=
SEEDS ?= 100000
CLUSTER_SEEDS ?= 10000
FROM ?= 0
MINUTES ?= 60
CLUSTER ?=
ARENA ?=
RUST_TARGET ?=
CARGO_BUILD ?= build

.PHONY: demo demo-cluster dist package nfpm help test bench bench-paired bench-tuning cluster-faults bench-cluster bench-2m bench-1m-hash soak sim fuzz miri deny conformance arena arena-held arena-smoke

demo:
	$(CARGO) build --release --locked --bin myriad
	$(TARGET)/release/myriad demo $(DEMO)

dist:
	$(CARGO) build --release --locked --bin myriad
	deploy/split-symbols.sh $(TARGET)/release/myriad $(TARGET)/dist
	@ls -sh $(TARGET)/dist

# What is released must not change with its tools.
NFPM_VERSION := v2.43.4
CARGO_SBOM_VERSION := 0.10.0
NFPM := $(abspath $(TARGET)/nfpm/nfpm)
CARGO_SBOM := $(TARGET)/cargo-sbom/bin/cargo-sbom
# Of another target than this machine's, each has a folder of its own.
DIST := $(TARGET)/dist$(if $(RUST_TARGET),/$(RUST_TARGET))
PROGRAM := $(TARGET)/$(if $(RUST_TARGET),$(RUST_TARGET)/)release/myriad

nfpm: $(NFPM)

$(NFPM):
	GOBIN=$(dir $(NFPM)) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

$(CARGO_SBOM):
	$(CARGO) install --locked --version $(CARGO_SBOM_VERSION) --root $(TARGET)/cargo-sbom cargo-sbom

package: $(NFPM) $(CARGO_SBOM)
	$(CARGO) $(CARGO_BUILD) --release --locked --bin myriad $(if $(RUST_TARGET),--target $(RUST_TARGET))
	@# Packages of another version would be installed or signed by mistake.
	rm -f $(DIST)/*.deb $(DIST)/*.rpm $(DIST)/*.tar.gz
	NFPM=$(NFPM) deploy/packages/build.sh $(PROGRAM) $(DIST)
	$(CARGO_SBOM) --cargo-package myriad --output-format cyclone_dx_json_1_4 > $(DIST)/myriad.cdx.json
	cd $(DIST) && sha256sum -- *.deb *.rpm *.tar.gz *.debug *.cdx.json > SHA256SUMS
	@ls -sh $(DIST)

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

test:
	$(PYTHON) tests/run.py $(TEST)

bench:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/run.py --hash --myriad $(TARGET)/release/myriad $(BENCH)

# Short names for two scenarios of bench/run.py.
bench-2m bench-1m-hash:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/run.py --only $(@:bench-%=broadcast-%) --myriad $(TARGET)/release/myriad $(BENCH)

soak:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/soak.py --myriad $(TARGET)/release/myriad $(SOAK)

conformance:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) tests/conformance/run.py $(CONFORMANCE)

bench-cluster:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/cluster.py --myriad $(TARGET)/release/myriad $(CLUSTER)

demo-cluster:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/demo_cluster.py --myriad $(TARGET)/release/myriad $(CLUSTER)

cluster-faults:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) -m venv tests/cluster/.venv
	tests/cluster/.venv/bin/pip install --quiet -r tests/cluster/requirements.txt
	tests/cluster/.venv/bin/python tests/cluster/faults.py --runs 20 --myriad $(TARGET)/release/myriad $(FAULTS)

bench-paired:
	$(if $(BEFORE),,$(error BEFORE=PROGRAM is missing: the earlier build, such as ../before/target/release/myriad))
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/paired.py --before $(BEFORE) --after $(TARGET)/release/myriad $(PAIRED)

bench-tuning:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/tuning.py --myriad $(TARGET)/release/myriad $(TUNING)

SIM := $(CARGO) test --locked --profile sim -p myriad-shard --test
CLUSTER_SIM := $(CARGO) test --locked --profile sim -p myriad-server --lib broker::tests

sim:
ifeq ($(SEED),)
	MYRIAD_SIM_SEEDS=$(CLUSTER_SEEDS) MYRIAD_SIM_FROM=$(FROM) $(CLUSTER_SIM)::at_length -- --ignored --nocapture
	MYRIAD_SIM_SEEDS=$(SEEDS) MYRIAD_SIM_FROM=$(FROM) MYRIAD_SIM_MINUTES=$(MINUTES) $(SIM) sim -- at_length --ignored --nocapture
	$(PYTHON) tests/coverage.py --lines
else
	MYRIAD_SIM_SEED=$(SEED) $(SIM) sim -- replay --nocapture
endif

fuzz:
	$(PYTHON) tests/fuzz.py --minutes $(MINUTES) $(FUZZ)

miri:
	$(PYTHON) tests/miri.py

deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --locked check

arena:
	$(CARGO) build --release --locked --bin myriad
	$(TARGET)/release/myriad arena --json arena.json --html arena.html $(ARENA)

arena-held:
	$(CARGO) build --release --locked --bin myriad
	$(TARGET)/release/myriad arena --held long-poll --connections 15k --rounds 3 --markdown arena-long-poll.md $(ARENA)
	$(TARGET)/release/myriad arena --held sse --connections 15k --rounds 3 --markdown arena-sse.md $(ARENA)

arena-smoke: arena/.venv/installed
	$(CARGO) build --release --locked --bin myriad
	arena/.venv/bin/python arena/smoke.py $(ARENA)

arena/.venv/installed: arena/requirements.txt
	$(PYTHON) -m venv arena/.venv
	arena/.venv/bin/python -m pip install --quiet -r $<
	touch $@
