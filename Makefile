.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python 3.11 with venv is needed (Debian: apt install python3.11-venv)"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.13"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[embedded,test,lint]'
	@touch $@

install: $(STAMP)  ## create .venv and install everything into it

demo: $(STAMP)  ## watch messages pass, be retried and be rejected
	@$(BIN)/python examples/demo.py

serve: $(STAMP)  ## run the service on port 8700 with the embedded default
	@$(BIN)/rectifier serve

test: $(STAMP)  ## run every test
	@$(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal

lint: $(STAMP)  ## ruff, mypy, import contracts, deptry
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/deptry .

bench: $(STAMP)  ## measure overhead beside a floor, cost by preset, and growth
	@$(BIN)/python -m benchmarks.overhead
	@$(BIN)/python -m benchmarks.cost
	@$(BIN)/python -m benchmarks.growth

replay: $(STAMP)  ## audit every agent step of the shared trajectories
	@$(BIN)/python -m benchmarks.replay

.PHONY: help install demo serve test lint bench replay
