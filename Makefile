# Each target works on a fresh clone with Python and make alone, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# The published data sets, where they lie beside the checkout; tests that need them say so and skip elsewhere.
export STEELYARD_DATA ?= $(abspath $(wildcard ../shared/data))

.PHONY: demo test test-core test-oldest lint docs release-check bench reproduce clean

demo: $(VENV)/.core
	$(BIN)/steelyard demo

test: $(VENV)/.full
	$(BIN)/python -m pytest -n auto

test-core: $(VENV)/.test-core
	$(BIN)/python -m pytest -n auto

# The oldest versions of the dependencies that pyproject.toml allows, in an environment of its own.
test-oldest: $(VENV)/.oldest/.ready
	$(VENV)/.oldest/bin/python -m pytest -n auto

lint: $(VENV)/.full
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, from its sources and the docstrings: docs/_build/html/index.html opens from the file system. Then its links.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html -j 2 docs docs/_build/html
	$(BIN)/python docs/check_site.py

# Builds what would be published, installs it alone, runs the demo and the core tests from it.
release-check: $(VENV)/.full
	$(BIN)/python -m tests.release $(ARGS)

# TABLE=toy and the like; without it the list of tables and studies. ARGS="--set rule=best" and the like.
reproduce: $(VENV)/.full
	$(BIN)/python -m experiments $(TABLE) $(ARGS)

# OLD=FOLDER, a checkout of an older commit: this one's ratio estimators are timed beside its, too.
bench: $(VENV)/.bench/.ready
	$(VENV)/.bench/bin/python -m benchmarks.run $(BENCH)
	$(VENV)/.bench/bin/python -m benchmarks.limit
	$(if $(OLD),$(VENV)/.bench/bin/python -m benchmarks.before $(OLD) --out results/benchmarks/before.md)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Steelyard needs Python 3.11 or newer; %s is %s. Try: make PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/.test-core: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	@touch $@

# PyTorch by its exact version first: that is the CPU build where there is one, and later requirements are met by it.
$(VENV)/.full: $(VENV)/.core
	$(PIP) torch==2.13.0
	$(PIP) --requirement experiments/requirements.txt --editable '.[deep,vine,discrepancy,tables,distributed,lightning,transformers,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.full
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.oldest/.ready: $(VENV)/bin/python pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)/.oldest
	$(VENV)/.oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt --editable '.[dev]'
	@touch $@

# The peers are measured, not used: they have an environment of their own.
$(VENV)/.bench/.ready: $(VENV)/bin/python benchmarks/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)/.bench
	$(VENV)/.bench/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt --requirement experiments/requirements.txt --editable .
	for peer in cvxopt==1.3.3 adapt==0.4.5; do \
	  $(VENV)/.bench/bin/python -m pip install --quiet --disable-pip-version-check $$peer || echo "$$peer does not install here: measured without it"; \
	done
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build docs/gallery docs/api/generated
