# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES = pyproject.toml constraints.txt
# Compiled modules are kept: else each process that a test starts would compile all of Mnemos again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint docs format install dev chromium compiler clean

install: $(VENV)/.installed
dev: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(SOURCES) | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/.installed $@

# Once installed: less than a minute.
demo: install
	$(BIN)/mnemos compare recipes/quickstart.yaml --out runs/demo
	$(BIN)/mnemos forgetting runs/demo --rounds 10 --side-by-side --figure runs/demo/forgetting.png
	$(BIN)/mnemos report runs/demo --out runs/demo/report.html --title 'Forgetting on digits'
	@echo 'next:    open runs/demo/report.html in a browser'

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src

docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The tests of the report open it in a browser: the one on the path, or the one $MNEMOS_CHROMIUM names.
chromium:
	@if [ -n "$$MNEMOS_CHROMIUM" ] || command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium > /dev/null; \
	else \
		echo "chromium is missing: install it, or set MNEMOS_CHROMIUM to its path" >&2; exit 1; \
	fi

# The tests of devices compile one: with g++, or the compiler that $CXX names.
compiler:
	@if command -v "$${CXX:-g++}" > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && apt-get -qq install --yes --no-install-recommends g++ > /dev/null; \
	else \
		echo "a C++ compiler is missing: install g++, or set CXX to its path" >&2; exit 1; \
	fi

# Three processes for two cores: what waits for other processes leaves a core to the others.
test: lint docs chromium compiler
	$(BIN)/pytest --numprocesses 3 --dist worksteal

format: dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
