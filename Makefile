# Pilotage: what a checkout can do. `make` alone lists it.
#
# Everything is installed into .venv inside the checkout (the matrix of the probe's tests: .venv-matrix) and
# nowhere else; `make clean` removes it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# -c keeps every install at the versions of the lock; torch and torch_xla only work as a pair.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
STAMP_DEMO := $(VENV)/.installed-demo
STAMP_TEST := $(VENV)/.installed-test
DOWNLOAD := 4.3 GB to download (nearly all of it torch 2.9.1 with its CUDA libraries), 7.6 GB on disk, \
            under 3 minutes on a fast line
# Two workers: the suite has to fit a machine with two cores. A file stays on one worker.
PYTEST_ARGS ?= -n 2 --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test probe-matrix screenshots lock bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22
	@echo
	@echo "  The first demo or test: $(DOWNLOAD)."
	@echo "  PYTHON=python3.11 chooses the Python that .venv is made with (3.10 to 3.13)."

demo: $(STAMP_DEMO) ## install what is missing and open the cockpit on the demo session
	@$(BIN)/python pilotage.py demo

test: $(STAMP_TEST) ## lint, format check, type check and every test, torch_xla included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(PYTEST_ARGS)

# Says first what it downloads; MATRIX_ARGS="--list" only says it, "--only py38-torch1.13" makes one.
probe-matrix: $(STAMP_TEST) ## the probe's loop tests in other Pythons and torch versions (.venv-matrix/, 27 GB)
	$(BIN)/python tests/matrix/make_environments.py $(MATRIX_ARGS)

screenshots: $(STAMP_DEMO) ## redraw screenshots/*.svg from a demo session of the real app
	$(BIN)/python pilotage.py screenshots screenshots

bench: $(STAMP_TEST) ## measure the figures of BENCHMARKS.md on this machine
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

lock: ## rewrite constraints.txt from pyproject.toml (Python 3.10 and newer, all extras)
	@echo "Making a throw-away environment with uv (25 MB) to resolve pyproject.toml; about half a minute."
	@set -eu; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	$(PYTHON) -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet uv; \
	"$$work/venv/bin/uv" pip compile --quiet --universal --python-version 3.10 --all-extras \
	    --no-emit-index-url --no-emit-package pip --no-header --upgrade \
	    --output-file "$$work/constraints.txt" pyproject.toml; \
	{ echo "# Made by 'make lock' from pyproject.toml; do not edit. One file for Python 3.10 and newer."; \
	  sed '/^# The following packages were excluded/,$$d' "$$work/constraints.txt"; } > constraints.txt
	@git --no-pager diff --stat -- constraints.txt

clean: ## remove .venv, build output and caches (sessions are kept: they live in the pilotage home)
	rm -rf $(VENV) .venv-matrix build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis snapshot_report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment with the right Python, or a sentence that says what to do.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "There is no '$(PYTHON)' here. Install Python 3.10 to 3.13, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	    echo "'$(PYTHON)' is $$($(PYTHON) --version 2>&1), but torch_xla 2.9.0 exists for Python 3.10 to 3.13 only." >&2; \
	    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@[ "$$(uname -s)-$$(uname -m)" = Linux-x86_64 ] || { \
	    echo "torch_xla 2.9.0 exists for Linux on x86_64 only, and this is $$(uname -s) on $$(uname -m)." >&2; \
	    echo "The cockpit alone works here: $(PYTHON) -m pip install -c constraints.txt ." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu it comes with the package python3-venv." >&2; exit 2; }

# $(call install,EXTRAS): say what it costs, install, say how long it took or what to do.
define install
@echo "Installing pilotage[$(1)] into $(VENV). Into an empty one: $(DOWNLOAD)."
@start=$$(date +%s); if $(INSTALL) -e '.[$(1)]'; then echo "Installed in $$(( $$(date +%s) - start )) s."; else \
    echo "pip could not install pilotage[$(1)]; its reason stands above. Run 'make $(MAKECMDGOALS)' again to go on." >&2; exit 1; fi
endef

comma := ,

$(STAMP_DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(call install,demo)
	@touch $@

$(STAMP_TEST): pyproject.toml constraints.txt | $(BIN)/python
	$(call install,demo$(comma)test)
	@touch $(STAMP_DEMO) $@
