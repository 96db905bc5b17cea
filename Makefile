# Everything runs in .venv, which is made on first use: nothing but Python >= 3.11 and make is needed.
#   make demo   measure a small model, print the tables, write demo.png and the report demo.html
#   make test   the test suite without the slow simulations
# Use another interpreter with `make test PYTHON=python3.12`, other workers with `JOBS=4`, other tests with `ARGS="-k losses"`.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
ARGS   ?=

BIN    := $(VENV)/bin
# One thread per worker: two workers with two threads each are slower than two with one. Each worker begins with a half
# of the files and takes from the other at the end: what JAX compiled for a file is compiled once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: help demo test slow test-all lint types docs docs-examples browser bench clean

help:
	@echo "make demo | test | slow | test-all | lint | types | docs | docs-examples | browser | bench | clean"

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

# The code blocks of the documents are `make docs-examples`. JAX compiles quickly here; `make slow` runs the tests of
# rounding again with what it compiles for users, `make test-all` runs all of them so.
test: $(VENV)/.test
	$(PYTEST) --quick-jax -m "not slow" --ignore=tests/test_readme.py $(ARGS)

slow: $(VENV)/.test
	$(PYTEST) -m "slow or compiled_for_users" $(ARGS)

test-all: $(VENV)/.test
	$(PYTEST) $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# Warnings are errors; the examples are run; links are followed, and nothing is loaded from a network. The pages are in docs/_build/html.
docs: $(VENV)/.docs
	MPLBACKEND=Agg OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html

docs-examples: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --noconftest tests/test_readme.py $(ARGS)

# The report, and the pages of `make docs` if they are there, in Debian's chromium.
browser: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_report_browser.py $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/asv machine --yes
	$(BIN)/asv run --python=same --quick --show-stderr $(ARGS)
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/routes.py
	$(BIN)/python benchmarks/conditional.py
	$(BIN)/python benchmarks/rashomon.py
	$(BIN)/python benchmarks/refit.py
	$(BIN)/python benchmarks/deep.py
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) .asv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist *.png *.html examples/*.png examples/*.html
	rm -rf docs/_build docs/generated docs/auto_examples docs/sg_execution_times.rst

# One stamp per extra: pip runs again only when pyproject.toml has changed.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

.PRECIOUS: $(VENV)/.%

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "reliance needs Python 3.11 or newer; say which with PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
