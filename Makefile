# make demo: everything set up, then the main job on built-in data.   make test: everything set up, then all tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format docs bench-step clean

demo: $(READY)
	$(BIN)/vsdn demo --out vsdn-demo

test: $(READY)
	$(BIN)/pytest -n 2

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -m "not slow"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python docs/make_cli_reference.py

# The benchmark has an environment of its own: PyTorch, the rival, is nothing that the library needs.
.venv-bench/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 -e .
	touch $@

bench-step: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/training_step.py --out benchmarks/RESULTS.md

# constraints.txt makes the install repeatable; `make lock` renews it from the bounds in pyproject.toml.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,check]'
	touch $@

.PHONY: lock
lock:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade -e '.[test,check]'
	$(BIN)/pip freeze --exclude-editable --disable-pip-version-check > constraints.txt
	touch $(READY)

clean:
	rm -rf .venv .venv-bench vsdn-demo build dist
