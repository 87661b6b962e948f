# On a bare machine `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
JAVA := .venv/.java
FUZZ := .venv/.fuzz

.PHONY: demo docs fuzz test test-slow check format generate lock bench mutants crash-sweep codec-coverage setup clean
.PHONY: canaries compiled compiled-check wheel

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
	$(BIN)/python tools/picture.py --check
	$(BIN)/replog sim schema | cmp - scenarios/schema.json || { echo 'scenarios/schema.json is out of date: make generate' >&2; exit 1; }
	$(BIN)/python tools/prose.py
	$(BIN)/python tools/unordered.py

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(SETUP)
	$(BIN)/python -m cluster.rpc.generate
	$(BIN)/python tools/rules_table.py
	$(BIN)/python tools/picture.py
	$(BIN)/replog sim schema > scenarios/schema.json

# Fuzzes every decoder under atheris for SECONDS; an input that breaks one is kept in tests/fuzz/corpus, which
# `make test` replays.
SECONDS ?= 30
fuzz: setup $(FUZZ)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

$(FUZZ): $(SETUP) requirements-fuzz.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	touch $@

# The pages of docs/ and the docstrings, as a site; a warning is an error.
docs: $(SETUP)
	$(BIN)/python -m sphinx -q -E -W --keep-going -n -b html docs out/docs
	@echo "open out/docs/index.html"

bench: setup
	$(BIN)/python -m bench

# Plants mistakes into copies of the checkout: each must make a named test or scenario fail.
mutants: setup
	$(BIN)/python tools/mutants.py

# Crashes small workloads at every file-system call and recovers from each state that this may leave, fails every call,
# and plants mistakes that these runs must notice.
crash-sweep: setup
	$(BIN)/python -m tests.crash --mistakes

# How much of connection core and codec simulated runs go through, and which messages simulated and real nodes send.
codec-coverage: setup
	$(BIN)/python -m tests.sim.runs.codec_coverage

# Plants ten mistakes that make one seed two runs, and prints what notices each: the comparison of runs, or the guard.
canaries: setup
	$(BIN)/python -m tests.sim.determinism.canary_table

# The hot modules of storage, core and sim as libraries, in build/compiled; needs a C compiler. The checkout itself stays
# interpreted: PYTHONPATH=build/compiled chooses the compiled modules.
compiled: $(SETUP)
	$(BIN)/python tools/compiled.py build

# The trace hashes of all bundled scenarios and of a few drawn seeds must be those of the interpreter.
compiled-check: $(SETUP)
	$(BIN)/python tools/compiled.py check --seeds 2

# The pure wheel, or with COMPILED=1 that of this platform; installing either needs no compiler.
wheel: $(SETUP) $(if $(COMPILED),compiled)
	REPLOG_COMPILED=$(COMPILED) $(BIN)/python -m build --wheel --no-isolation --outdir dist .

# Needs uv; all other targets install from the lock that it writes.
lock:
	uv pip compile pyproject.toml --extra spark --extra fast --group dev --group docs --python-version 3.11 \
	  --universal --generate-hashes --quiet --output-file requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
