# make setup    a virtual environment in .venv with the locked dependencies; nothing to do when nothing changed
# make demo     the pipeline: events loaded by Spark, drained while a worker is killed, archived, reported
# make test     every test, on the embedded PostgreSQL; PG=system: on the system's; ARGS="-k name": as pytest takes them
# make check    format, lint, types, layers
# make bench    the figures, each as JSON and a table
# make fault    the long run: faults by the thousand; goes on where it was stopped; ARGS="--replay SEED": one round again
# make docs     the tests of the manual's examples
# make screenshots   the pictures of the dashboard in the manual
# make lock     write requirements/*.txt anew from pyproject.toml
# make clean    remove what the others made

PYTHON ?= python3
PG ?= embedded
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.stamp
CLASSES := .venv/spark-classes.jsa
# Tests that have much in common, such as a JVM, are one process's (tests/conftest.py); the others are dealt as they come.
# There are two processes more than cores, for some tests wait. Each has a server of its own.
PARALLEL = -n $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 2, 6))') --dist load --max-worker-restart 0 --durations 40

ifeq ($(PG),system)
# The newest of the system's, looked up when a recipe runs: it may have just been installed.
POSTGRES_ENV = PENSTOCK_POSTGRES_BIN="$$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)"
POSTGRES = system-postgresql
else
POSTGRES_ENV =
POSTGRES =
endif

.PHONY: setup compiled demo test check bench fault docs screenshots lock clean system-postgresql java chromium node promtool
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer: make setup PYTHON=python3.11")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv \
	  || { echo "no virtual environment: install Python's venv (Debian: apt-get install python3-venv) and run make again" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Where the environment forbids that Python keeps what it compiled, every program of a run would compile all modules anew:
# two fifths of what a short one takes.
compiled: $(STAMP)
	@$(BIN)/python -m compileall -q src tests bench

# The classes of Spark as a JVM finds them soonest.
$(CLASSES): $(STAMP) tests/jvm.py | java
	$(BIN)/python -m tests.jvm

demo: setup java
	$(BIN)/python examples/demo.py

test: setup compiled java $(POSTGRES) chromium node promtool $(CLASSES)
	$(POSTGRES_ENV) $(BIN)/pytest $(PARALLEL) $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup java $(POSTGRES)
	$(POSTGRES_ENV) $(BIN)/python -m bench $(ARGS)

fault: setup compiled java $(POSTGRES) $(CLASSES)
	$(POSTGRES_ENV) $(BIN)/python -m tests.fault $(ARGS)

docs: setup compiled java $(CLASSES)
	$(BIN)/pytest tests/docs $(ARGS)

screenshots: setup chromium
	$(BIN)/python -m tests.browser.screenshots

lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock" pyproject.toml --output-file requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock" --group dev --extra serve --extra spark --extra trace pyproject.toml --output-file requirements/dev.txt

system-postgresql:
	@ls -d /usr/lib/postgresql/*/bin >/dev/null 2>&1 \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; } \
	  || { echo "no system PostgreSQL: install it (Debian: apt-get install postgresql) and run make again" >&2; exit 1; }

# For Spark.
java:
	@command -v java >/dev/null || test -x "$$JAVA_HOME/bin/java" \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless; } \
	  || { echo "no Java: install version 17 or newer (Debian: apt-get install openjdk-17-jre-headless) and run make again" >&2; exit 1; }

# For the tests that open pages.
chromium:
	@test -n "$$PENSTOCK_CHROMIUM" || command -v chromium-headless-shell >/dev/null \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium-headless-shell; } \
	  || command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || { echo "no Chromium: install it (Debian: apt-get install chromium-headless-shell) and run make again" >&2; exit 1; }

# For the tests of workers in other languages.
node:
	@{ command -v node && command -v jq && command -v curl; } >/dev/null \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nodejs jq curl; } \
	  || { echo "no Node, jq or curl: install them (Debian: apt-get install nodejs jq curl) and run make again" >&2; exit 1; }

# For the tests of alerts.
promtool:
	@command -v promtool >/dev/null \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus; } \
	  || { echo "no promtool: install Prometheus (Debian: apt-get install prometheus) and run make again" >&2; exit 1; }

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
