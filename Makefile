# Every target that needs Python sets up .venv by itself: `make demo` or `make test` is enough on a fresh machine.

PYTHON ?= python3
TORCH  := torch==2.13.0
# The index that torch is taken from, where it is not the default one: that of the CPU builds, for example.
TORCH_INDEX ?=
VENV   := .venv
BIN    := $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check --quiet
FROM    = $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
STAMP  := $(VENV)/.installed
CLEAN  := build/clean
PEERS  := build/peers
CODE   := src tests benchmarks examples
# Documents, whose code is formatted as well.
TEXTS  := README.md CONTRIBUTING.md docs

# pyright: no look-up of newer versions, so that a check needs no network
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# mkdocs-material: no notice about other products on every build
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format docs package bench bench-page bench-peers lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked packages and surefoot itself

# torch comes first, from an index of its own where one is named. The default index has the build for CUDA on Linux, with
# several gigabytes of NVIDIA's packages; docs/install.md says how to get the small one. Either suits the lock.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'surefoot needs Python 3.11 or newer; $(PYTHON) is' "$$($(PYTHON) -V)"; \
		  echo 'name another: make PYTHON=python3.12 ...'; exit 1; }
	@echo 'Setting up $(VENV) from requirements.lock (once, a few minutes)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(FROM) $(TORCH)
	$(PIP) install --requirement requirements.lock
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(STAMP) ## a tour of every system on bundled data, end to end
	$(BIN)/surefoot demo

# One process for each core, and one thread in each; a file's tests stay together, so that its fixtures are made once.
# CORETYPE=Nehalem, for example, makes numpy's and scipy's OpenBLAS use those kernels: results differ by rounding.
test: $(STAMP) ## the tests, without those marked slow
	$(if $(CORETYPE),OPENBLAS_CORETYPE=$(CORETYPE)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-slow: $(STAMP) ## the tests marked slow
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## lint, formatting and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE) $(TEXTS)
	$(BIN)/pyright

format: $(STAMP) ## format and apply safe lint fixes
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE) $(TEXTS)

docs: $(STAMP) ## build the documentation into site/; a warning is an error
	$(BIN)/mkdocs build --strict

# What a user gets: the wheel with the dependencies that it declares, away from the sources.
package: $(STAMP) ## build the wheel, install it into a new environment, run the demo there
	rm -rf dist build/lib build/bdist.* $(CLEAN)
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -m pip --disable-pip-version-check --quiet install $(FROM) $(TORCH)
	$(CLEAN)/bin/python -m pip --disable-pip-version-check --quiet install --constraint requirements.lock dist/*.whl
	cd $(CLEAN) && bin/surefoot demo && bin/surefoot-check surefoot-demo/feed-forward

bench: $(STAMP) ## run the benchmarks, beside the peers where `make bench-peers` has put them; tables also in build/bench
	$(if $(wildcard $(PEERS)/.installed),$(PEERS)/bin,$(BIN))/python benchmarks/run.py --json build/bench

bench-page: $(STAMP) ## write docs/benchmarks.md, with what `make bench` measured last
	$(BIN)/python benchmarks/page.py $(wildcard build/bench)

bench-peers: $(PEERS)/.installed ## install what the benchmarks compare with into build/peers

# An environment of their own, which sees the packages of .venv, torch and surefoot among them; the lock keeps those as they are.
$(PEERS)/.installed: $(STAMP) benchmarks/peers.txt
	$(BIN)/python -m venv --clear $(PEERS)
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" > "$$($(PEERS)/bin/python -c "$$packages")/venv.pth"
	$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install --constraint requirements.lock --requirement benchmarks/peers.txt
	@touch $@

# Run with the oldest supported Python and a CPU build of torch, so that the versions suit every supported Python.
lock: ## resolve requirements.lock anew from pyproject.toml
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --quiet install $(FROM) $(TORCH)
	@! build/lock/bin/python -m pip freeze | grep '^nvidia' || { echo 'torch is a CUDA build here: the lock needs the CPU build'; exit 1; }
	build/lock/bin/python -m pip --quiet install --editable '.[dev]'
	@{ echo '# Made by `make lock`: every package that .venv holds, by exact version.'; \
	   build/lock/bin/python -m pip freeze --all --exclude pip --exclude surefoot | sed 's/+cpu$$//'; \
	 } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf build/lock

clean: ## remove .venv, build results and caches
	rm -rf $(VENV) build dist site src/*.egg-info .benchmarks .hypothesis .pytest_cache .ruff_cache
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
