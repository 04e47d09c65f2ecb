# Each target sets up what it needs: a virtual environment in .venv, the release build of the extension, the tools.
# A stamp file tells what is already there, so that a second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
export VIRTUAL_ENV := $(abspath $(VENV))
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1

RUST := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name Cargo.toml)

# BENCH_SMOKE=1 runs every benchmark once, to see that it works, and measures nothing.
BENCH_SMOKE ?=

.PHONY: demo test test-rust test-models test-tools test-python bench judge lint clean
.DELETE_ON_ERROR:

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'pip>=25.1' 'maturin>=1.9,<2'
	mkdir -p $(STAMPS) && touch $@

# Python files are used in place; only Rust and the package's metadata need a build.
$(STAMPS)/build: $(STAMPS)/venv pyproject.toml $(RUST)
	$(BIN)/maturin develop --release --quiet
	touch $@

$(STAMPS)/test $(STAMPS)/bench $(STAMPS)/lint: $(STAMPS)/%: $(STAMPS)/build
	$(BIN)/maturin develop --release --quiet --extras $*
	touch $@

demo: $(STAMPS)/build
	$(BIN)/tokenpulse report tests/fixtures/demo_requests.jsonl --slo ttft=500ms,tpot=30ms
	$(BIN)/tokenpulse report tests/fixtures/demo_events.jsonl --slo ttft=500ms,tpot=30ms --by tenant --timeline 500ms
	$(BIN)/tokenpulse kv tests/fixtures/mooncake_conversation.jsonl.gz --blocks 10000 --curve
	$(BIN)/tokenpulse simulate --rate 20 --fault eviction-storm:0.6 -o $(VENV)/storm.jsonl
	$(BIN)/tokenpulse diagnose $(VENV)/storm.jsonl

test: test-rust
	$(MAKE) --no-print-directory test-python

test-rust: $(STAMPS)/venv
	if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --workspace && cargo test --workspace --doc; \
	else cargo test --workspace; fi
	$(MAKE) --no-print-directory test-models

# Every interleaving of a writer and a reader, in a build of its own whose atomics are the model checker's.
test-models:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --quiet -p tokenpulse-core --lib models

test-tools: $(STAMPS)/test

test-python: test-tools
	$(BIN)/python -m pytest -n auto

bench: $(STAMPS)/bench
ifeq ($(BENCH_SMOKE),)
	cargo bench --workspace
	$(BIN)/python -m pytest benches/python -o addopts= --benchmark-only
	$(BIN)/python benches/python/tail.py
	$(BIN)/python benches/python/memory.py
	$(BIN)/python benches/python/memory_report.py
else
	cargo bench --workspace -- --test
	$(BIN)/python -m pytest benches/python -o addopts= --benchmark-disable -q
	BENCH_SMOKE=1 $(BIN)/python benches/python/tail.py
	BENCH_SMOKE=1 $(BIN)/python benches/python/memory.py
	BENCH_SMOKE=1 $(BIN)/python benches/python/memory_report.py
	BENCH_SMOKE=1 $(BIN)/python benches/judging/diagnosis.py
	BENCH_SMOKE=1 $(BIN)/python benches/judging/capacity.py
endif

# What the diagnosis finds in simulated runs, healthy and faulty: the table in docs/diagnosis.md; and how well a sweep
# finds what the simulator can take: docs/capacity.md.
judge: $(STAMPS)/build
	$(BIN)/python benches/judging/diagnosis.py
	$(BIN)/python benches/judging/capacity.py

lint: $(STAMPS)/lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tokenpulse._core

clean:
	rm -rf $(VENV) target .pytest_cache .hypothesis .benchmarks .mypy_cache .ruff_cache
	find python -name '*.so' -delete
	find python tests -name __pycache__ -prune -exec rm -rf {} +
