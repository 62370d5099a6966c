# Everything a developer, a visitor or CI runs. `make` lists the targets. Nothing needs to be set up by hand: each target
# brings what it needs, or says what is missing and which command installs it.

PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
# JupyterLab refuses to run as root unless told so; containers often are.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup front-end chromium demo demo-run test test-fast check types generate format bench lock clean

help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  PYTHON=python3.12 make setup   uses another interpreter (3.11 or newer)"

setup: ## Create .venv with the locked environment and the package, editable. Quick when nothing changed.
	@PYTHON="$(PYTHON)" tools/setup.sh

front-end: # node_modules as locked
	@tools/front-end.sh

chromium: # a browser for the tests
	@tools/chromium.sh

demo: setup ## Open the demo notebook in JupyterLab.
	@$(RUN) -m genscope.kernel_side.models demo
	JUPYTER_PREFER_ENV_PATH=1 $(BIN)/jupyter lab $(AS_ROOT) demo.ipynb

demo-run: setup ## Execute the demo notebook without a browser, into artefacts/demo.ipynb.
	@$(RUN) tools/notebook.py run demo.ipynb artefacts/demo.ipynb

test: test-fast chromium ## Run all tests: front end, kernel side, real kernels, real browser.
	$(RUN) -m pytest -m "slow or kernel or browser"

# Two processes with a thread each: the models are so small that a second thread gains nothing.
test-fast: setup front-end ## Run the tests that take seconds.
	cd js && npm run --silent test
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 -m "not slow and not kernel and not browser"

check: setup front-end types ## Formatting, lint, types, and whether generated files are fresh.
	@tools/check.sh

# mypy does not follow the editable mapping; these links show it the folders under their import names.
types:
	@mkdir -p build/types/genscope
	@cd build/types/genscope && ln -sfn ../../../kernel_side kernel_side && ln -sfn ../../../widget widget \
		&& ln -sfn ../../../widget/genscope/__init__.py __init__.py && ln -sfn ../../../widget/genscope/py.typed py.typed

generate: setup front-end ## Write the generated files anew: wire schema, its types, the front end's bundle.
	$(RUN) tools/generated.py write

format: setup front-end ## Format Python, notebooks and JavaScript; fix what lint can fix.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cd js && npm run --silent format

bench: setup chromium ## Run the benchmarks; each ends with its figures as one JSON object.
	@for script in benchmarks/*.py; do echo "== $$script"; $(RUN) "$$script" || exit 1; done

lock: setup ## Bring requirements/dev.txt in line with pyproject.toml (ARGS=--upgrade takes newer versions).
	$(RUN) tools/lock.py $(ARGS)

clean: ## Remove the environment and all that was built, the committed bundle excepted.
	rm -rf .venv build dist artefacts js/node_modules *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
