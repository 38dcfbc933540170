# make demo | test | test-all | lint | bench | sweep set themselves up: a virtual environment in .venv, pinned by
# constraints.txt, made again only when that file or pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
# Compiled modules are kept, whatever the shell says: tests start hundreds of processes, and each
# would compile this tree anew.
export PYTHONDONTWRITEBYTECODE :=
READY := .venv/.ready
# What measures time or exhausts the machine runs alone, one test after the other. All else uses
# every core; the tests of a file stay together, in their order, for some share a cluster. Files are
# handed out as tests/conftest.py has them, the longest first, not those with most tests.
ALONE := tests/alone
# What needs Chromium and the built page.
BROWSER := tests/browser
# The page: from PAGE, with the program that it shares with the daemon, into a Python package of its own.
PAGE := wasm_worker
SITE := $(PAGE)/daa_compute_page/site
NODE_MODULES := $(PAGE)/node_modules/.package-lock.json
PAGE_SOURCES := $(wildcard $(addprefix $(PAGE)/,*.html *.json *.ts)) $(addprefix daa_node/spot_checks/,pieces.py recompute.py) \
	$(shell find $(addprefix $(PAGE)/,src kernels public vendor) -type f)
# The operator's dashboard, in the same way. It has the icon, the colours and the build's own parts of PAGE.
DASHBOARD := dashboard
BOARD := daa_node/api/dashboard
# What draws the page of `simnet report`, of the same components.
REPORT := simnet/results/page
DASHBOARD_MODULES := $(DASHBOARD)/node_modules/.package-lock.json
DASHBOARD_SOURCES := $(wildcard $(addprefix $(DASHBOARD)/,*.html *.json *.ts)) $(shell find $(DASHBOARD)/src -type f 2> /dev/null) \
	$(addprefix $(PAGE)/,codings.ts licenses.ts src/colours.css src/icon.svg)
# Two workers more than cores: a test that waits for a process or a page leaves its core to another.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# What the page is built and tested with, as few other things here are. One error for each that
# is missing, before anything else is done.
needs_node = @node=$$(command -v npm > /dev/null && node --version 2> /dev/null) || node="none here"; \
	case $$node in v20.19.*|v20.[2-9]?.*|v22.1[2-9].*|v22.[2-9]?.*|v2[3-9].*|v[3-9]?.*) ;; *) \
	  echo "the page is built by Node.js 20.19, 22.12 or newer with its npm, and there is $$node:" >&2; \
	  echo "install it from nodejs.org or your distribution; daemons run without the page." >&2; exit 1; esac
needs_chromium = @command -v chromium > /dev/null || command -v google-chrome > /dev/null || { \
	  echo "the page is tested in Chromium, and there is none here:" >&2; \
	  echo "on Debian and Ubuntu, apt-get install chromium" >&2; exit 1; }
# A test that ends its process is tried again after all others; a second time ends the run.
SHARED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# Past an hour something hangs, on a machine that is slow and busy as well. It is cut off as if by
# Ctrl-C, once, so that it says what failed and what still ran.
BOUNDED := $(if $(shell command -v timeout),timeout --foreground --signal=INT --kill-after=60 3600)
# PIP_FLAGS=--no-compile: each module is compiled when it is first imported, most of them never.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)

.PHONY: demo test test-long test-all test-everything test-browser test-page page dashboard page-tools browser-tools lint bench sweep docs docs-serve clean

demo: $(READY) $(if $(findstring --browser,$(DEMO_ARGS)),page) $(if $(findstring --dashboard,$(DEMO_ARGS)),dashboard)
	@$(BIN)/python -m daa_node demo $(DEMO_ARGS)

# $(call tests,MARKS,OTHERS): those tests, first the ones that may share the machine; all are run
tests = failed=0; \
	$(BOUNDED) $(BIN)/python -m pytest $(SHARED) --ignore=$(ALONE) $(2) -m $(1) $(PYTEST_ARGS) || failed=1; \
	$(BOUNDED) $(BIN)/python -m pytest $(ALONE) -m $(1) $(PYTEST_ARGS) || failed=1; exit $$failed

test: $(READY)
	@$(call tests,'not long',--ignore=$(BROWSER))

# What takes long: real daemons killed at every moment, whole sweeps, planted mistakes.
test-long: $(READY)
	@$(call tests,long,--ignore=$(BROWSER))

# In one session: each begins by importing everything, and ends with idle cores.
test-all: $(READY)
	@$(call tests,'long or not long',--ignore=$(BROWSER))

# And the page's beside them: a browser that is waited for leaves its core to another test.
test-everything: browser-tools $(READY) page dashboard
	@$(call tests,'long or not long')

# The pages' units, then the pages themselves in headless Chromium.
test-browser: browser-tools $(READY) test-page
	@$(BOUNDED) $(BIN)/python -m pytest $(BROWSER) $(PYTEST_ARGS)

test-page: page dashboard
	@cd $(PAGE) && npm run --silent kernel && npm run --silent test
	@cd $(DASHBOARD) && npm run --silent test

# Built anew only when something of it changed. Nothing else here needs Node.js.
page: $(SITE)/index.html

# It appears at once and whole: a build that is stopped leaves the page before it, or none.
$(SITE)/index.html: $(PAGE_SOURCES) $(NODE_MODULES)
	$(needs_node)
	@cd $(PAGE) && npm run --silent build
	@rm -rf $(SITE)/index.html $(SITE) && mv $(PAGE)/build/site $(SITE)

dashboard: $(BOARD)/index.html $(REPORT)/report.js

$(BOARD)/index.html: $(DASHBOARD_SOURCES) $(DASHBOARD_MODULES)
	$(needs_node)
	@cd $(DASHBOARD) && npm run --silent build
	@rm -rf $(BOARD)/index.html $(BOARD) && mv $(DASHBOARD)/build/site $(BOARD)

$(REPORT)/report.js: $(DASHBOARD_SOURCES) $(DASHBOARD_MODULES)
	$(needs_node)
	@cd $(DASHBOARD) && npm run --silent report
	@rm -rf $(REPORT)/report.js $(REPORT) && mv $(DASHBOARD)/build/report $(REPORT)

# What either is built with, as its own lock has it.
%/node_modules/.package-lock.json: %/package.json %/package-lock.json %/.npmrc
	$(needs_node)
	@cd $* && npm ci --loglevel=error --ignore-scripts
	@touch $@

page-tools:
	$(needs_node)

browser-tools: page-tools
	$(needs_chromium)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy $(MYPY_FLAGS)
	@$(BIN)/vermin --quiet --target=3.11- --no-tips --no-parse-comments daa_dag daa_consensus daa_node simnet
	@$(BIN)/lint-imports --no-logo

# By hand: what needs a daemon beside it, a directory, a page, or the network. Each of these says how it is run.
BY_HAND := $(addprefix benchmarks/,api_crowd.py base_wheels.py dashboard_events.py history.py scrape_metrics.py)

bench: $(READY)
	@for file in $(filter-out $(BY_HAND),$(wildcard benchmarks/*.py)); do \
	  echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file || exit 1; done

# Clusters in trouble, seed by seed, then attacks by twins: an hour on two cores. Every listed
# attack (`simnet twins --all`) takes hours.
sweep: $(READY)
	@$(BIN)/simnet sweep --seeds 10000 $(SWEEP_ARGS)
	@$(BIN)/simnet twins

# The site, into build/docs; a link, an anchor or a page that is wrong ends it (not --quiet, which
# counts no warnings). PYTHONPATH: mkdocs loads handbook/hooks.py, which imports what is beside it.
docs: $(READY)
	@PYTHONPATH=. $(BIN)/python -m mkdocs build --strict
	@echo "build/docs/index.html: open it in a browser"

docs-serve: $(READY)
	@PYTHONPATH=. $(BIN)/python -m mkdocs serve --strict --dev-addr 127.0.0.1:$(or $(DOCS_PORT),8000)

clean:
	rm -rf .venv demo-data build dist $(SITE) $(BOARD) $(REPORT) $(addprefix $(PAGE)/,node_modules build) $(addprefix $(DASHBOARD)/,node_modules build) *.egg-info $(PAGE)/*.egg-info .mypy_cache .ruff_cache .pytest_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "daa-compute needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  echo "no virtual environment: on Debian and Ubuntu, apt-get install python3-venv" >&2; \
	  rm -rf .venv; exit 1; }
	@echo "Setting up .venv: once, a few minutes (PyTorch is large)."
	@$(PIP) torch==2.13.0
	@$(PIP) -e '.[test]' || { \
	  echo "Where a compiler, Python.h or gmp.h is missing: on Debian and Ubuntu, apt-get install gcc python3-dev libgmp-dev" >&2; exit 1; }
	@# libp2p drags in stubs of an old trio that would hide trio's own types from mypy
	@rm -rf .venv/lib/python3*/site-packages/trio-stubs
	@touch $@
