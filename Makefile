# A few verbs; each makes or refreshes .venv by itself. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
PAIR ?= en-de
BIN := .venv/bin
RECIPES := multi30k-en-de multi30k-en-de-rnn multi30k-en-de-rnn-plain multi30k-en-de-ensemble tatoeba-en-de \
	wmt14-en-de-base wmt14-en-de-big wmt14-en-fr-rnnsearch iwslt14-de-en

.DEFAULT_GOAL := help
.PHONY: help install test planted soak soak-translate memory check demo bench bench-gpu experiments trial estimate clean $(RECIPES)

help:
	@echo 'make VERB, on a fresh machine too: .venv is made or refreshed first. PYTHON=python3.12 names another interpreter.'
	@echo
	@echo 'install      .venv with the versions of constraints.txt'
	@echo 'test         the tests (8 minutes on two cores)'
	@echo 'check        lint, formatting, types'
	@echo 'planted      plant known bugs one by one and see that a test fails for each (5 minutes)'
	@echo 'soak         break trainings of both backends off 50 times by each of kill -9, signals and full disks, resume, compare (20 minutes)'
	@echo 'soak-translate  stop translations 40 times each, go on, and compare all bytes with those of one run (10 minutes)'
	@echo 'memory       what commands take of memory on inputs of several sizes, and over a long training (30 minutes)'
	@echo 'demo         train and compare both backends on a corpus made on the spot (4 minutes); PAIR=de-en for another'
	@echo 'bench        speed of the demo: training and translation by both backends, after make demo (3 minutes)'
	@echo 'bench-gpu    speed of the base Transformer on one GPU, training and translation, on made-up text (8 minutes)'
	@echo 'experiments  claims of the papers, measured where that is not done yet (100 minutes): pictures, words (NMT_DATA=DIR)'
	@echo 'trial        all recipes the whole way in small, on text made on the spot (1 minute each); RECIPE=NAME for one'
	@echo 'estimate     what the training of RECIPE=NAME would cost here, by some of its updates on made-up text (5 minutes)'
	@echo 'clean        remove .venv, caches and runs/demo; the runs of recipes stay'
	@echo
	@echo 'Recipes: data, training, scores (NMT_DATA=DIR takes the data from a folder, SEED=2 is another seed):'
	@printf '%s\n' $(RECIPES)

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "nmt needs Python 3.11 or newer; name one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into .venv (some minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Threads that wait without spinning: beside other work, tests with two threads would take many times as long. The tests of a module
# stay in one process: they share what it sets up.
test: .venv/installed
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2 --dist loadscope

planted: .venv/installed
	OMP_WAIT_POLICY=passive $(BIN)/python tests/planted.py

soak: .venv/installed
	OMP_WAIT_POLICY=passive $(BIN)/python -m tests.soak

soak-translate: .venv/installed
	OMP_WAIT_POLICY=passive $(BIN)/python -m tests.soak_translate

memory: .venv/installed
	OMP_WAIT_POLICY=passive $(BIN)/python -m tests.soak_memory

check: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

demo: .venv/installed
	$(BIN)/python recipes/demo.py --pair $(PAIR)

bench: .venv/installed
	@test -d runs/demo/$(PAIR)/rnn || { echo 'nothing to measure yet: make demo PAIR=$(PAIR)' >&2; exit 1; }
	for backend in transformer rnn; do \
		$(BIN)/nmt bench runs/demo/$(PAIR)/data --config recipes/demo/$$backend.toml && \
		$(BIN)/nmt bench runs/demo/$(PAIR)/$$backend runs/demo/$(PAIR)/text/test.$(firstword $(subst -, ,$(PAIR))) || exit; \
	done

bench-gpu: .venv/installed
	$(BIN)/python recipes/bench_gpu.py

experiments: .venv/installed
	$(BIN)/python recipes/experiments/run.py

trial: .venv/installed
	for recipe in $(or $(RECIPE),$(RECIPES)); do $(BIN)/python recipes/run.py $$recipe --trial || exit; done

estimate: .venv/installed
	@test -n '$(RECIPE)' || { echo 'say which: make estimate RECIPE=wmt14-en-de-base' >&2; exit 2; }
	$(BIN)/python recipes/run.py $(RECIPE) --estimate

$(RECIPES): .venv/installed
	$(BIN)/python recipes/run.py $@ $(if $(SEED),--seed $(SEED))

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build nmt.egg-info runs/demo
	find nmt recipes tests -name __pycache__ -type d -prune -exec rm -rf {} +
