# make demo    as many connections as this machine allows, and three pushes to all of them
# make test    everything CI runs; ends with "N passed, N failed"
# make bench   the figures of docs/benchmarks.md, beside the plain baseline (an hour, on an idle machine)
#
# Options go to the program: make demo DEMO='--connections 100k', make bench BENCH='--only broadcast-100k'.

CARGO ?= cargo
PYTHON ?= python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
DEMO ?=
BENCH ?=
TEST ?=

.PHONY: demo test bench

demo:
	$(CARGO) build --release --locked --bin myriad
	$(TARGET)/release/myriad demo $(DEMO)

test:
	$(PYTHON) tests/run.py $(TEST)

bench:
	$(CARGO) build --release --locked --bin myriad
	$(PYTHON) bench/run.py --hash --myriad $(TARGET)/release/myriad $(BENCH)
