# Everything a fresh clone needs: a Python of 3.11 or newer and make.
# The environment is made in .venv once, and again only when what it is made from changes.

VENV   := .venv
PY     := $(VENV)/bin/python
BENCH_VENV := .venv-bench
JOBS   ?= 2
ARGS   ?=

# `make PYTHON=/path/to/python3` names the interpreter that makes the environment.
ifdef PYTHON
export PYTHON
endif

# One thread for each test process: the same numbers on every machine, and two processes do not fight.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg

# What a user's shell or pip settings may hold must not reach into the environment.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE := 1
export PIP_USER := 0
export PIP_REQUIRE_HASHES := 0
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: environment-run environment-dev environment-bench
.PHONY: help demo test test-slow test-portable wheel-check sanitize flips release survive bench quality check checks format-check lint types imports safety page examples studies docs docs-serve doc-blocks format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Small networks: two runs at a time, a thread each. What is finished is not trained again; `make clean` forgets.
DEMO := -m bayeswell compare --threads 1 --workers 2 --no-report
demo: environment-run ## install, then show what Bayesian methods gain and lose: a curve with a gap, a small table, digits with noise and shifted
	$(PY) $(DEMO) --methods map,laplace=laplace:temperature=1:prior_weight=0.1,deep-ensemble,auto --data gap \
	    --model mlp --model-set hidden=[50,50] --epochs 120 --out build/demo/gap $(ARGS)
	$(PY) $(DEMO) --methods map,bbb,hwa,deep-ensemble --data diabetes --model mlp --model-set hidden=[50] --epochs 40 \
	    --folds 5 --out build/demo/diabetes $(ARGS)
	$(PY) $(DEMO) --methods map,hwa,deep-ensemble,auto --data digits --ood noise --model mlp \
	    --model-set hidden=[100,100] --epochs 20 --batch-size 50 --seeds 3 --out build/demo/digits $(ARGS)
	$(PY) -m bayeswell report build/demo/gap build/demo/diabetes build/demo/digits --out build/demo/report.html --threads 1 \
	    --title "What Bayesian methods gain over ordinary training, and at what price"

test: environment-dev ## install, then run the tests (ARGS="-k name" picks some)
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --dist worksteal --durations 10 $(ARGS)

test-slow: environment-dev ## the tests marked slow, and only those
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --dist worksteal --durations 10 -m slow $(ARGS)

# What differs from processor to processor: networks, compiled formulas, convolutions, noise, sums.
PORTABLE ?= tests/models tests/native tests/layers tests/test_noise.py tests/posteriors/test_linear_regression.py \
    tests/lifting/test_statistics_reestimation.py
test-portable: environment-dev ## tests that the processor could change, as on older ones (PORTABLE=tests: all of them)
	$(TEST_ENV) sh tools/other_processors.sh $(PY) -m pytest -n $(JOBS) --dist worksteal $(PORTABLE) $(ARGS)

wheel-check: environment-dev ## build the wheels, with and without a compiler, and try them where only the core is installed
	$(PY) tools/try_wheel.py $(ARGS)

sanitize: environment-dev ## compiled formulas under the address and undefined-behaviour sanitizers, fuzzed for a minute
	$(PY) tools/sanitize.py $(ARGS)

flips: environment-dev ## flip every bit of small files and 20,000 of large ones, of runs and of a model: none may pass (a quarter of an hour and more)
	OMP_NUM_THREADS=1 $(PY) tools/bit_flips.py $(ARGS)

release: wheel-check ## a source archive and a wheel in dist/, with their bill of materials and hashes
	mkdir -p dist && cp build/wheel-check/dist/*.tar.gz build/wheel-check/dist/compiled/*.whl dist/
	$(PY) tools/release.py dist && $(PY) tools/release.py dist --check

survive: environment-dev ## kills of all methods, flips, full disks, clocks, locks, ranks: nothing may be lost (30 minutes; ARGS=--quick: one)
	OMP_NUM_THREADS=1 $(PY) tools/survive.py $(ARGS)

# The threads are the benchmark's own choice: ARGS="--threads 1".
bench: environment-bench ## time steps and predictions beside other libraries (ARGS=--check compares with the goals)
	MPLBACKEND=Agg $(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

# Data sets are read where BAYESWELL_DATA says; what is not there is left out, with a word.
quality: environment-bench ## every method, untuned, on the same problems: two hours (ARGS="--slow --uci --peers --check")
	MPLBACKEND=Agg $(BENCH_VENV)/bin/python -W ignore::UserWarning -m benchmarks.quality $(ARGS)

# The longest first: `make -j 2 --output-sync --keep-going check` is quicker, and shows everything there is to mend.
CHECKS := doc-blocks types examples studies docs page format-check lint imports safety
check: $(CHECKS) ## everything besides the tests that must hold before a commit

checks: # one a line, for .ci/run
	@printf '%s\n' $(CHECKS)

format-check: environment-dev ## is the code formatted?
	$(PY) -m ruff format --check .

lint: environment-dev ## ruff's rules
	$(PY) -m ruff check .

types: environment-dev ## mypy, strict
	$(PY) -m mypy

imports: environment-dev ## do rooms import downwards only, without cycles?
	$(PY) tools/import_graph.py

safety: environment-dev ## nothing that runs code from a file, no path of one machine
	$(PY) tools/forbidden.py

page: environment-dev ## are docs/methods.md, docs/bad_input.md, the method cards, README's table and the papers' verdicts what the code and the records say?
	$(PY) tools/write_method_page.py --check
	$(PY) tools/write_cards.py --check
	$(PY) tools/readme_table.py --check
	$(PY) tools/write_verdicts.py --check
	$(TEST_ENV) $(PY) tools/write_bad_input_page.py --check

examples: environment-dev ## every example, in smoke mode
	$(TEST_ENV) $(PY) tools/run_examples.py --jobs $(JOBS) $(ARGS)

# What the quality benchmark has measured before would not run again: a smoke test of old numbers shows nothing.
studies: environment-dev ## every study at the smoke scale: that it runs from its file to its verdicts; `make quality` too
	@mkdir -p build
	$(TEST_ENV) $(PY) -m bayeswell study studies --scale smoke --out build/studies --quiet >build/studies.txt
	$(TEST_ENV) $(PY) -W ignore::UserWarning -m benchmarks.quality --quick --again --workers $(JOBS)

# The variable keeps Material from speaking of another program that will be called MkDocs 2.
docs: environment-dev ## the documentation site, into build/site; any warning, dead link or anchor is a fault
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	$(PY) tools/check_site.py build/site

docs-serve: environment-dev ## the site on http://127.0.0.1:8000, made anew whenever a page changes
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve $(ARGS)

doc-blocks: environment-dev ## run the code of README and docs and compare what it prints (ARGS=docs/x.md: one page)
	$(TEST_ENV) $(PY) tools/doc_blocks.py --jobs $(JOBS) $(ARGS)

format: environment-dev ## format the code and mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) $(BENCH_VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The script knows whether there is anything to do.
environment-run:
	@sh tools/environment.sh run

environment-dev:
	@sh tools/environment.sh dev

environment-bench:
	@sh tools/environment.sh bench
