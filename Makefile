.DEFAULT_GOAL := help
.PHONY: help run test check format audit lock build clean

PYTHON := .venv/bin/python

help:  ## Show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run:  ## Start everything here and show a batch and its webhook
	scripts/run

test:  ## Run every check there is
	scripts/test

check:  ## Style, format, types and layers only
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports

format:  ## Put the code into its form
	.venv/bin/ruff check --fix . ; .venv/bin/ruff format .

audit:  ## Look the pinned packages up among known vulnerabilities
	$(PYTHON) scripts/audit

lock:  ## Pin the packages anew (needs uv)
	scripts/lock

build:  ## Build the sdist and the wheel into dist/
	$(PYTHON) -m hatchling build

clean:  ## Remove what tools left, but neither .venv nor var
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
