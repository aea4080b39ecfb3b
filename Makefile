# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES = pyproject.toml constraints.txt

.PHONY: demo test lint format install dev clean

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

demo: install
	$(BIN)/mnemos compare recipes/quickstart.yaml --out runs/demo

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest --numprocesses 2 --dist worksteal

format: dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
