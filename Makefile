# make install   the machine set up: Debian packages (as root), .venv, this project in it
# make lab       a small organization on this machine, to try things by hand
# make tour      the same, tried by itself: each step says what is expected and what came
# make test      lint, types, layers, unit and integration tests (CI=true: a missing server is a failure)
# make unit      only the fast tests
# make proving   databases move under load, with 500 clients of each protocol; hubs are killed, also with their disks
# make bench     this front door beside nginx, HAProxy and Dovecot, in one run
# make clean     everything away that these commands made
#
# PYTHON=python3.13 chooses the interpreter of a new .venv (3.11 or later). GATEPOST_SKIP_PACKAGES=1: leave apt alone.

PYTHON ?=
PROVING_SESSIONS ?= 500
PROVING_RUNS ?= 20
BIN := .venv/bin
SOURCES := src tests benchmarks
export PYTHON
# Children of the tests find the project's own commands first.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help install lab tour proving test lint types layers unit integration bench clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install:
	@scripts/install

lab: install
	@$(BIN)/gatepost lab

tour: install
	@$(BIN)/gatepost lab --tour

test: install lint types layers
	@scripts/run-tests

lint: install
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: install
	$(BIN)/mypy

layers: install
	$(BIN)/lint-imports

unit: install
	@scripts/run-tests tests/unit

integration: install
	@scripts/run-tests tests/integration

proving: install
	$(BIN)/gatepost proving move --lab --sessions $(PROVING_SESSIONS)
	$(BIN)/gatepost proving move --lab --sessions $(PROVING_SESSIONS) --kill
	$(BIN)/gatepost proving transport --lab
	$(BIN)/gatepost proving shadow --lab --runs $(PROVING_RUNS)

bench: install
	@scripts/install-runtime .cache/runtime
	$(BIN)/python benchmarks/run.py --python .cache/runtime/bin/python

clean:
	rm -rf .venv .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
