# Two commands do all the set-up on a bare machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
JAVA := .venv/.java
FUZZ := .venv/.fuzz

.PHONY: demo fuzz test test-slow check format generate lock bench mutants crash-sweep setup clean

setup: $(SETUP) $(JAVA)

# The environment comes from the lock, hashes checked; the project itself is installed as a plain path.
$(SETUP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(JAVA): $(SETUP)
	sh tools/ensure-java
	touch $@

demo: setup
	$(BIN)/replog sim run scenarios/torn-tail-power-loss.yaml --seed 7
	$(BIN)/python -m replog.demo

test: setup
	$(BIN)/python -m pytest -q -rs tests

test-slow: setup
	$(BIN)/python -m pytest -q -rs -m slow tests

check: $(SETUP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m cluster.rpc.generate --check
	$(BIN)/python tools/rules_table.py --check

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(SETUP)
	$(BIN)/python -m cluster.rpc.generate
	$(BIN)/python tools/rules_table.py

# Every decoder under atheris, SECONDS each; what breaks one lands in tests/fuzz/corpus, which `make test` replays.
SECONDS ?= 30
fuzz: setup $(FUZZ)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

$(FUZZ): $(SETUP) requirements-fuzz.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	touch $@

bench: setup
	$(BIN)/python -m bench

# Mistakes planted into copies of the checkout: each must make a named test or scenario fail.
mutants: setup
	$(BIN)/python tools/mutants.py

# A crash at every file-system call of small workloads, each state that it may leave, each call failing, and mistakes.
crash-sweep: setup
	$(BIN)/python -m tests.crash --mistakes

# Needs uv; everyone else installs from what it wrote.
lock:
	uv pip compile pyproject.toml --extra spark --extra fast --group dev --python-version 3.11 \
	  --universal --generate-hashes --quiet --output-file requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
