# Needs python3, pip and make. Everything else goes into .venvs/.

PYTHON ?= python3
DEV := .venvs/dev/bin
DEMO := .venvs/demo/bin
DOCS := .venvs/docs/bin
RELEASE := .venvs/release/bin
BROWSER := .venvs/browser/bin
BENCH := .venvs/bench/bin

# Tests and linters must not depend on what the caller has exported for another project.
unexport DJANGO_SETTINGS_MODULE PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help test test-quickstart test-browser conformance django-tests mutants faults
.PHONY: lint format demo docs bench bench-quick profile bench-venv clean
.PHONY: dev-venv demo-venv docs-venv browser-venv release release-venv

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

test: ## Run the tests on PostgreSQL and SQLite (ARGS='--only sqlite -- -k claim')
	@$(PYTHON) -m tests.matrix $(ARGS)

lint: dev-venv ## Check style, types, layers and missing migrations
	$(DEV)/ruff check
	$(DEV)/ruff format --check
	$(DEV)/mypy
	JOBQUEUE_TEST_DATABASE=sqlite $(DEV)/python -m tests.typecheck
	JOBQUEUE_TEST_DATABASE=sqlite $(DEV)/python -m pytest -q tests/test_layers.py
	JOBQUEUE_TEST_DATABASE=sqlite $(DEV)/python -m django makemigrations \
		--check --dry-run jobqueue --settings tests.settings

format: dev-venv ## Let ruff repair and format the code
	$(DEV)/ruff check --fix
	$(DEV)/ruff format

demo: demo-venv ## Run the example project (DATABASE_URL=postgres://… for PostgreSQL)
	@$(DEMO)/python example_project/demo.py $(ARGS)

test-quickstart: dev-venv ## Follow the README in a fresh project, on both databases
	@$(DEV)/python -m tests.postgres -- \
		$(DEV)/python -m tests.quickstart.follow_readme $(ARGS)

release: dev-venv release-venv ## Build dist/, check it, follow the quickstart with the wheel
	@$(DEV)/python -m tests.postgres -- \
		$(RELEASE)/python -m tests.release $(ARGS)

test-browser: browser-venv ## Walk through the admin in a real browser (needs Chromium)
	JOBQUEUE_TEST_BROWSER=1 JOBQUEUE_TEST_DATABASE=sqlite \
		$(BROWSER)/python -m pytest -q -s tests/browser $(ARGS)

conformance: ## Hold our backend and others against django.tasks; write the table
	@$(PYTHON) -m tests.conformance

django-tests: ## Run Django's own tests of django.tasks against our backend
	@$(PYTHON) -m tests.django_tests

mutants: dev-venv ## Seed bugs that the tests must find (ARGS='--only rescue --jobs 2')
	@$(DEV)/python -m tests.mutants $(ARGS)

faults: dev-venv ## Kill, crash and stop workers for an hour (ARGS='--minutes 10')
	@$(DEV)/python -m tests.postgres -- $(DEV)/python -m tests.faults $(ARGS)

docs: docs-venv ## Build the documentation; warnings are errors
	@$(DOCS)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: bench-venv ## Measure ours and the peers in turn (ARGS='--only drain')
	@$(BENCH)/python -m benchmarks $(ARGS)

bench-quick: bench-venv ## Compare ours with a bare psycopg loop, in under 3 minutes
	@$(BENCH)/python -m benchmarks --quick $(ARGS)

profile: bench-venv ## Draw a flame graph of the worker under load
	@$(BENCH)/python -m benchmarks.profile $(ARGS)

clean: ## Remove the virtual environments and what the tools left behind
	rm -rf .venvs .tox build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev-venv:
	@$(PYTHON) -m tests.venvs dev test,lint

demo-venv:
	@$(PYTHON) -m tests.venvs demo binary

docs-venv:
	@$(PYTHON) -m tests.venvs docs docs

release-venv:
	@$(PYTHON) -m tests.venvs release release

browser-venv:
	@$(PYTHON) -m tests.venvs browser test,browser

bench-venv:
	@$(PYTHON) -m benchmarks.installs
