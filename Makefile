# Two commands matter: `make swarm` runs it, `make test` tests it. Both install into .venv with plain pip first.
#
#   make swarm ARGS="--minutes 10 --problems rmsnorm_residual"     anything `swarm run` takes
#   make install EXTRAS=cuda                                       where no driver is found but one is wanted
#   make install PYTHON=python3.12 VENV=/somewhere/else

VENV   ?= .venv
PYTHON ?= $(shell for name in python3 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null \
	&& { echo "$$name"; break; }; done)
EXTRAS ?= $(if $(wildcard /proc/driver/nvidia/version),cuda)
ARGS   ?=
BIN    := $(VENV)/bin
comma  := ,
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install swarm doctor test attack gpu lint check format clean

help:
	@echo 'make swarm    install, run the swarm on this machine, print the scoreboard'
	@echo 'make test     install, run the tests'
	@echo 'make attack   try every known trick, and every honest candidate that looks like one, on the judge'
	@echo 'make gpu      install, run the tests that need an NVIDIA GPU'
	@echo 'make check    ruff, mypy and the tests'
	@echo 'make doctor   say what this machine can do and what is missing'
	@echo 'make format   let ruff rewrite what it can'
	@echo 'make clean    remove .venv and caches; runs and results stay'

install: $(VENV)/.run

swarm: $(VENV)/.run
	@$(BIN)/swarm run $(ARGS)

doctor: $(VENV)/.run
	@$(BIN)/swarm doctor

# Real clocks, signals and processes: what failed beside the other worker must pass by itself. Both are printed.
test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 -m "not gpu" $(ARGS) || { \
	test $$? -eq 1 && echo 'once more, by themselves: the tests that failed' \
	&& $(BIN)/python -m pytest -m "not gpu" --last-failed --last-failed-no-failures none; }

attack: $(VENV)/.run
	@$(BIN)/python -m tests.corpus $(ARGS)

gpu: $(VENV)/.dev
	@$(BIN)/python -m pytest -m gpu $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

check: lint test

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'no Python 3.11 or 3.12 on PATH; install one, or type: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@echo 'making $(VENV) with $(PYTHON)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo 'no venv module; on Debian type: apt-get install python3-venv' >&2; exit 1; }

# The tests compile for GPUs, which needs none, so they get the extra `cuda` everywhere.
# A stamp is newer than what it was installed from, so a changed pin or dependency installs again.
$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	@echo 'installing kernel-swarm$(addprefix [,$(addsuffix ],$(EXTRAS))) into $(VENV): some minutes the first time'
	@$(PIP) install -c constraints.txt -e '.$(addprefix [,$(addsuffix ],$(EXTRAS)))'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	@echo 'installing kernel-swarm and what its tests need into $(VENV): some minutes the first time'
	@$(PIP) install -c constraints.txt -e '.[dev,cuda$(addprefix $(comma),$(EXTRAS))]'
	@touch $(VENV)/.run $@
