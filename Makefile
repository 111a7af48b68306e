PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
INSTALLED := .venv/.installed

.PHONY: run test test-slow compatibility check fmt docs bench

.venv/bin/python:
	$(PYTHON) -m venv .venv

$(INSTALLED): pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[fast]'
	touch $@

$(INSTALLED)-test: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ $(INSTALLED)

run: $(INSTALLED)
	$(PY) -m kafkad $(ARGS)

test: $(INSTALLED)-test
	$(PY) -m pytest $(ARGS)

test-slow: $(INSTALLED)-test
	$(PY) -m pytest -m slow $(ARGS)

compatibility: $(INSTALLED)-test
	$(PY) -m pytest -p tests.compatibility -m 'slow or not slow' tests/clients $(ARGS)

check: $(INSTALLED)-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) -m pytest -q -x

fmt: $(INSTALLED)-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)-test
	$(PY) -m kctl.reference > docs/kctl.md

bench: $(INSTALLED)-test
	missed=0; for table in figures groups cleaner segments records kctl; do $(PY) -m tests.bench.$$table || missed=1; done; \
	$(PY) -m tests.bench.sidebyside $(ARGS) && exit $$missed
