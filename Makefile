# make demo       the page on-call gets, from a recorded server
# make test       the quick tests, without databases, browsers and other servers
# make test-all   every test
# All need Python 3.11 or newer (python3), git and make, and build .venv on the first call.

PYTHON ?= python3
# test processes: as many as cores, at most four (some tests start a Prometheus of their own)
PYTEST_WORKERS ?= auto
VENV := .venv
BIN := $(VENV)/bin
# no byte code yet: Python writes that of the modules that are used, whatever the environment says
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

.PHONY: demo test test-all golden check docs lock clean

demo: $(VENV)/.run
	@$(BIN)/driftwatch demo

# one thread a test process, as there are as many of these as cores; modules in the order of
# tests/conftest.py
test test-all: export POLARS_MAX_THREADS ?= 1
test test-all: export OPENBLAS_NUM_THREADS ?= 1
PYTEST := $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --maxprocesses 4 --no-loadscope-reorder \
    --dist loadfile --durations 20

test: $(VENV)/.dev
	@begin=$$(date +%s); \
	$(PYTEST) -m "not (postgres or browser or prometheus or helm or kill or slow)" $(PYTEST_ARGS) && \
	mkdir -p .pytest_cache && echo $$(($$(date +%s) - begin)) >.pytest_cache/make-test-seconds

test-all: $(VENV)/.dev
	$(PYTEST) $(PYTEST_ARGS)

# the pages and screens of tests/golden as they are printed now; read the diff before a commit
golden: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --maxprocesses 4 --dist loadfile \
	    --update-golden $$(grep -rl --include='test_*.py' 'golden(' tests)

check: $(VENV)/.dev
	scripts/check

docs: $(VENV)/.dev
	scripts/docs

lock:
	scripts/lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "driftwatch needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making $(VENV)" >&2
	$(PYTHON) -m venv $(VENV)

# every file that is installed is checked against a hash of the lock; the project itself is built
# by the locked build backend and stays where it is (-e)
$(VENV)/.run: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV): about a minute, once" >&2
	$(PIP) --require-hashes --no-deps -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock requirements-kubernetes.lock pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV): about a minute, once" >&2
	$(PIP) --require-hashes --no-deps -r requirements-dev.lock -r requirements-kubernetes.lock
	$(PIP) --no-deps --no-build-isolation --no-index -e .
	@touch $(VENV)/.run $@
