# `make serve` and `make test` are the two commands; each sets up what it needs. `make help` lists the rest.
SHELL   := /bin/bash
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
PEERS   := .venv-bench
NODE    := .node-servers
MODELS  := .node-models
OPENAPI := .node-openapi
WEB     := .node-web
DOCS    := .venv-docs
# Two per core, because tests wait for processes: on two cores, two workers take half as long again as four.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Each worker starts with a block of neighbouring tests, which share fixtures. Hundreds of tests start a process, which needs bytecode.
PYTEST  := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --dist=worksteal

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-long test-all check lint words web web-hashes web-check test-web lint-web browser test-browser screenshots conformance test-cluster faults attack fuzz bench \
  search-eval bench-peers openapi docs lock clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.dev $(NODE)/installed.json $(MODELS)/installed.json $(WEB)/installed.json  ## make .venv with everything that development needs

serve: $(VENV)/.run  ## set up and run the product; ARGS="--port N" and other options of `onetool serve`
	@$(BIN)/onetool serve $(ARGS)

test: setup  ## set up and run all tests
	$(PYTEST) -n $(WORKERS) $(ARGS)

test-long: setup  ## what `make test` leaves out: huge inputs, many processes, servers of others; some minutes
	$(PYTEST) -n $(WORKERS) -m long $(addprefix --ignore=tests/,browser faults replicas) $(ARGS)

test-all: setup  ## every suite, one after the other, and a table at the end: an hour and more
	@$(BIN)/python -m tests.all_suites $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.words --check
	$(BIN)/pyright

words: $(VENV)/.dev  ## the sentences of the source, by package; ARGS=core: of one; ARGS="--draw 200 SEED": some of them
	@$(BIN)/python -m tests.words $(ARGS)

check: lint web-hashes test  ## linters, types, layers, whether the page is built, then the tests

web: $(VENV)/.dev  ## build the page anew, from web/ into the package; ARGS=--dev: Vite's dev server, in front of `make serve`
	$(BIN)/python -m web.build $(ARGS)

web-hashes: $(VENV)/.dev
	$(BIN)/python -m web.build --hashes

test-web: $(VENV)/.dev  ## the page's logic, with Vitest: web/tests
	$(BIN)/python -m web.build --test

lint-web: $(VENV)/.dev  ## the page: types, templates, ESLint, Prettier; ARGS=--format: format it instead
	$(BIN)/python -m web.build $(or $(ARGS),--lint)

# Best effort: where npm can't reach its registry, it says so, and compares hashes only.
web-check: $(VENV)/.dev  ## build the page anew and compare
	$(BIN)/python -m web.build --check

browser:  ## install the browser that tests of the page need: Debian's Chromium, as root; says why where it can't
	@$(PYTHON) -m tests.browser.install

test-browser: setup  ## the page in a browser: every flow, and every screen in all languages, themes and sizes
	ONETOOL_BROWSER=full $(BIN)/python -m pytest -m '' tests/browser -n 2 $(ARGS)

screenshots: setup  ## the pictures of docs/guide/page.md
	PYTHONPATH=tests $(BIN)/python -m tests.browser.screenshots docs/pictures $(ARGS)

conformance: $(VENV)/.dev  ## the official MCP suite and real clients against the server
	$(BIN)/python -m tests.conformance $(ARGS)

test-cluster: setup  ## three replicas behind haproxy and nginx: killed, restarted, cut off; some minutes, installs both as root
	@$(BIN)/python -m tests.replicas.install
	ONETOOL_CLUSTER=full $(BIN)/python -m pytest -m '' tests/replicas $(ARGS)

faults: $(VENV)/.dev  ## what stores must withstand: some minutes
	ONETOOL_FAULTS=full $(BIN)/python -m pytest -m '' tests/faults $(ARGS)

attack: setup  ## every attack test, and a table: area, attempts, how many got through; ARGS=--record: write it to docs/operate/security.md
	ONETOOL_BROWSER=full $(BIN)/python -m tests.attack -n $(WORKERS) $(ARGS)

fuzz: $(VENV)/.dev  ## schemathesis over the REST API, ARGS are its own options; hypothesis at full length; the sandbox's frames
	PYTHONPATH=tests $(BIN)/python -m tests.interfaces.rest.fuzz $(ARGS)
	ONETOOL_FUZZ=full $(BIN)/python -m pytest -m "hypothesis or longer" -n $(WORKERS)
	$(BIN)/python -m tests.sandbox.fuzz --seconds 300

bench: $(VENV)/.dev  ## measure, as ratios in one run: docs/internals/benchmarks.md; half an hour, ARGS=--quick some minutes
	$(BIN)/python -u -m bench $(ARGS)

search-eval: $(VENV)/.dev  ## how well the search finds tools, on public sets; ARGS=--record: note the figures that must not fall
	$(BIN)/python -m tests.search_eval $(ARGS)

docs: $(DOCS)/.done  ## build the site of docs/ into site/; a link that leads nowhere fails
	@$(PYTHON) -B docs/modules.py
	@$(DOCS)/bin/zensical build --clean --strict

bench-peers: $(PEERS)/.done  ## install what `make bench` compares us with

openapi: $(OPENAPI)/installed.json  ## install whole OpenAPI documents (900 MB), and count what becomes of them; ARGS=--all: of all of them
	PYTHONPATH=tests $(BIN)/python -m tests.openapi_count $(ARGS)

lock: $(VENV)/.dev  ## resolve the dependencies anew (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -q \
	  --python-version 3.11 pyproject.toml --group pyproject.toml:build -o requirements.lock
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -q \
	  --python-version 3.11 pyproject.toml --extra cluster --extra otel --group pyproject.toml:dev -c requirements.lock -o requirements-dev.lock
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -q \
	  --python-version 3.11 pyproject.toml --extra cluster --extra otel --group pyproject.toml:build -c requirements-dev.lock -o deploy/requirements.lock
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -q \
	  --python-version 3.11 bench/peers.in -o bench/peers.lock

clean:  ## remove .venv and caches
	rm -rf $(VENV) $(PEERS) $(DOCS) site $(NODE) $(MODELS) $(OPENAPI) $(WEB) web/node_modules .conformance .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "OneTool needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV). The first start takes about a minute."
	@$(PYTHON) -m venv $(VENV)

# The lock pins every package by hash; the project itself is installed without touching the network again.
define install
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r $(1) \
	  | $(BIN)/python -uc '[print("  " + line.split()[1]) for line in open(0) if line.startswith("Collecting ")]'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
endef

$(VENV)/.run: $(BIN)/python requirements.lock pyproject.toml
	$(call install,requirements.lock)
	@touch $@

$(VENV)/.dev: $(BIN)/python requirements-dev.lock pyproject.toml
	$(call install,requirements-dev.lock)
	@touch $@ $(VENV)/.run

# Heavy, and with dependencies of their own: they get an environment of their own.
$(PEERS)/.done: $(BIN)/python bench/peers.lock
	$(BIN)/python -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install -q --require-hashes -r bench/peers.lock
	@touch $@

$(DOCS)/.done: docs/requirements.txt
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install -q -r docs/requirements.txt
	@touch $@

# Best effort: where npm can't reach its registry, the tests of these servers are skipped and say why.
$(NODE)/installed.json: tests/sources/mcp_servers/npm/package-lock.json | $(VENV)/.dev
	@$(BIN)/python -m tests.npm $(<D) $(NODE)

# Best effort, like the servers: without it, the second opinion on the APIs of models is skipped.
$(MODELS)/installed.json: tests/ask/npm/package-lock.json | $(VENV)/.dev
	@$(BIN)/python -m tests.npm $(<D) $(MODELS)

# Best effort: without it, nothing is said about accessibility.
$(WEB)/installed.json: web/package-lock.json | $(VENV)/.dev
	@$(BIN)/python -m tests.npm $(<D) $(WEB)

# Large, so only where it is asked for; without it, the test that needs it is skipped.
$(OPENAPI)/installed.json: tests/sources/bundles/openapi/npm/package-lock.json | $(VENV)/.dev
	@$(BIN)/python -m tests.npm $(<D) $(OPENAPI)
