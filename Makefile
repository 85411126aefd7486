# make demo: everything set up, then the main job on built-in data.   make test: everything set up, then all tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
KERNEL := $(wildcard src/vsdn/kernel/*)

# What is imported is compiled once, also where a machine is set not to keep it: of a start of Python that is most of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint check format docs bench bench-step clean

demo: $(READY)
	$(BIN)/vsdn demo --out vsdn-demo

# worksteal: a worker gets neighbouring tests, which share what is compiled
test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "not thorough" --durations=15

# Every model and size through every test.
test-all: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

check: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not thorough"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python docs/make_cli_reference.py
	$(BIN)/python docs/make_settings_reference.py

# The benchmarks have an environment of their own: the rivals are nothing that the library needs.
.venv-bench/.ready: pyproject.toml setup.py $(KERNEL)
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 torchsde==0.2.6 diffrax==0.7.2 -e .
	touch $@

bench: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/bench.py --out benchmarks/RESULTS.md

bench-step: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/training_step.py

# constraints.txt makes the install repeatable; `make lock` renews it from the bounds in pyproject.toml. With --no-compile
# not all that is installed is compiled beforehand.
$(READY): pyproject.toml constraints.txt setup.py $(KERNEL)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test,check]'
	touch $@

.PHONY: lock
lock:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade -e '.[test,check]'
	$(BIN)/pip freeze --exclude-editable --disable-pip-version-check > constraints.txt
	touch $(READY)

clean:
	rm -rf .venv .venv-bench vsdn-demo build dist src/vsdn/_kernel*
