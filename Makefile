# Needs python3, pip and make. Everything else goes into .venvs/.

PYTHON ?= python3
DEV := .venvs/dev/bin
DEMO := .venvs/demo/bin

# Tests and linters must not depend on what the caller has exported for another project.
unexport DJANGO_SETTINGS_MODULE PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help test lint format demo bench-quick clean dev-venv demo-venv

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

test: ## Run the tests on PostgreSQL and SQLite (ARGS='--only sqlite -- -k claim')
	@$(PYTHON) -m tests.matrix $(ARGS)

lint: dev-venv ## Check style, types, layers and missing migrations
	$(DEV)/ruff check
	$(DEV)/ruff format --check
	$(DEV)/mypy
	JOBQUEUE_TEST_DATABASE=sqlite $(DEV)/python -m pytest -q tests/test_layers.py
	JOBQUEUE_TEST_DATABASE=sqlite $(DEV)/python -m django makemigrations \
		--check --dry-run jobqueue --settings tests.settings

format: dev-venv ## Let ruff repair and format the code
	$(DEV)/ruff check --fix
	$(DEV)/ruff format

demo: demo-venv ## Run the example project (DATABASE_URL=postgres://… for PostgreSQL)
	@$(DEMO)/python example_project/demo.py $(ARGS)

bench-quick: dev-venv ## Compare the worker with a bare psycopg loop
	@$(DEV)/python -m tests.postgres --durable -- $(DEV)/python -m benchmarks.quick $(ARGS)

clean: ## Remove the virtual environments and what the tools left behind
	rm -rf .venvs .tox build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

dev-venv:
	@$(PYTHON) -m tests.venvs dev test,lint

demo-venv:
	@$(PYTHON) -m tests.venvs demo binary
