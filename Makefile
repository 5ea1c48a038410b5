# Every target makes what it needs, from a bare clone, with Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help venv demo test e2e lint bench wheel lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

venv: $(READY) ## the virtual environment with the locked dependencies and the allocguard command

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "allocguard needs Python 3.11 or newer, $(PYTHON) is %d.%d; set PYTHON" % sys.version_info[:2])'
	@echo "installing the locked dependencies into $(VENV): once, a minute or so"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## certificates, a server on the example cluster, reviews, verdicts, the ledger, one explained denial
	@$(BIN)/allocguard demo

test: $(READY) ## all tests that need nothing but Python
	$(BIN)/python -m pytest -n auto

e2e: $(READY) ## tests on real control planes of every release, built first from source, which takes Go and minutes once
	$(BIN)/python -m tests.e2e.build
	$(BIN)/python -m pytest tests/e2e -n 4

lint: $(READY) ## style, types, layers, shipped policies and their cases
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/allocguard policy lint
	$(BIN)/allocguard policy test

bench: $(READY) ## the figures, as a table; FIGURES='ledger writers' for some of them
	$(BIN)/python -m tests.bench $(FIGURES)

wheel: $(READY) ## dist/allocguard-*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header

lock: ## resolve the newest versions that pyproject.toml allows into the lock files
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --upgrade pyproject.toml -o requirements.lock
	$(COMPILE) --upgrade -c requirements.lock pyproject.toml --group dev -o requirements-dev.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
