# One command each; all of them set up .venv first, from nothing but Python 3.11+ and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

OLDEST := .venv-oldest
# The oldest CVXPY that bregopt supports; .venv has the newest.
OLDEST_CVXPY := 1.6.0

.PHONY: demo test oldest slow fuzz lint docs docs-numbers clean

demo: $(STAMP)
	$(BIN)/bregopt demo

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/pytest -n 2 tests/test_cvxpy_method.py tests/test_cvxpy_solver.py tests/test_from_cvxpy.py

slow: $(STAMP)
	$(BIN)/pytest -m slow

# make fuzz TRIALS=1000 SEED=7; the seed is printed, and each failure with the command that repeats it.
TRIALS ?= 100000
fuzz: $(STAMP)
	$(BIN)/python tests/fuzz.py --trials $(TRIALS) $(if $(SEED),--seed $(SEED))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

docs-numbers: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/pages.py

clean:
	rm -rf $(VENV) $(OLDEST) docs/_build bregopt-demo

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "bregopt needs Python 3.11 or later; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[all]" statsmodels --group dev --group docs
	touch $(STAMP)

$(OLDEST)/.installed: pyproject.toml $(STAMP)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(OLDEST)/bin/python -m pip install --quiet --editable . "cvxpy==$(OLDEST_CVXPY)" pandas networkx --group dev
	touch $(OLDEST)/.installed
