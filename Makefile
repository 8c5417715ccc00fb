# Everything a fresh clone needs: Python 3.11 or newer, and make. The environment is made once, in .venv.

VENV       := .venv
PY         := $(VENV)/bin/python
BENCH_VENV := .venv-bench
JOBS       ?= 2
ARGS       ?=
# One thread for each test process: the same numbers on every machine.
TEST_ENV   := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg

ifdef PYTHON
export PYTHON
endif
# Variables of the user's shell that must not reach into the environment.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PYTHONNOUSERSITE := 1
export PIP_USER := 0
export PIP_REQUIRE_HASHES := 0
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-portable coverage check lint types house examples docs docs-serve doc-blocks wheel-check survive studies bench quality format clean
.PHONY: environment-run environment-dev environment-bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: environment-run ## install, then show what Bayesian methods gain and lose, in one minute
	$(PY) examples/demo.py $(ARGS)

test: environment-dev ## install, then run the tests (ARGS="-k name" selects some)
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --dist worksteal --durations 10 $(ARGS)

test-slow: environment-dev ## run the tests marked slow
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --dist worksteal -m slow $(ARGS)

test-portable: environment-dev ## run the tests of the formulas as on older processors
	$(TEST_ENV) ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=SSE41 $(PY) -m pytest -n $(JOBS) tests/ops tests/posteriors tests/nn tests/estimators $(ARGS)

coverage: environment-dev ## run the tests and report the coverage
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --cov=bayeswell --cov-report=term $(ARGS)

check: lint types house examples docs doc-blocks ## everything else that must hold before a commit

lint: environment-dev ## format and lint rules, imports between rooms
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports

types: environment-dev ## mypy, strict
	$(PY) -m mypy

house: environment-dev ## sizes beside their budgets, and the words to avoid
	$(PY) tools/house.py

examples: environment-dev ## run every example in smoke mode
	$(TEST_ENV) $(PY) tools/run_examples.py

docs: environment-dev ## build the site into build/site; a dead link or anchor is an error
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --strict

docs-serve: environment-dev ## serve the site on http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs serve $(ARGS)

doc-blocks: environment-dev ## run the code of README and docs and compare what it prints
	$(TEST_ENV) $(PY) -m pytest -q -n $(JOBS) -m "" tools/test_doc_blocks.py $(ARGS)

wheel-check: environment-dev ## build sdist and wheels, and try them in an empty environment
	$(PY) tools/try_wheel.py $(ARGS)

survive: environment-dev ## kill runs, flip bits, fill disks: nothing may be lost (ARGS=--quick: one minute)
	OMP_NUM_THREADS=1 $(PY) tools/survive.py $(ARGS)

studies: environment-dev ## every study at the smoke scale
	$(TEST_ENV) $(PY) -m studies --scale smoke --out build/studies $(ARGS)

bench: environment-bench ## time steps and predictions beside other libraries (ARGS=--check compares with the goals)
	MPLBACKEND=Agg $(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

quality: environment-bench ## every method, untuned, on the same problems (ARGS="--no-run --check": the record alone)
	MPLBACKEND=Agg $(BENCH_VENV)/bin/python -m benchmarks.quality $(ARGS)

format: environment-dev ## format the code and fix what ruff can fix
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove the environments, caches and builds
	rm -rf $(VENV) $(BENCH_VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

environment-run environment-dev environment-bench: environment-%:
	@sh tools/environment.sh $*
