# Each command creates the virtual environment that it needs.
#   make train   train a PointGoal agent on procedural houses, evaluate it, write a report to runs/pointnav/report
#   make viewer  add the packages of an extra: viewer, export, ros2, video, adapters, vision, collada, draco or basisu
#   make test    run the tests
#   make plain   run the tests of small kernels as plain Python, which checks every index
#   make lint    style, import contracts, types, tables of results, sizes of files, and the checks of .ci
#   make docs    build the documentation to build/site; warnings are errors
#   make wheel   build sdist and wheels, and try the wheels in an empty folder
#   make fuzz    load N (default 10000) damaged files; SEED selects them

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Exact versions of dependencies and of build requirements. Newer versions of pip read the latter from
# PIP_BUILD_CONSTRAINT.
CONSTRAINTS ?= $(CURDIR)/constraints.txt
INSTALL := PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS) \
	$(RUN) -m pip install --quiet --no-compile
NEW_VENV = test -x $(RUN) || $(PYTHON) -m venv $(VENV) && $(INSTALL) pip
# Byte code is cached for imported modules only, not for all installed ones.
unexport PYTHONDONTWRITEBYTECODE
# A machine with an NVIDIA GPU uses CUDA's compiler wheels and the GPU configuration. A CPU trains in two parts, with the
# options of pointnav_waypoint_cpu_092 in eval/record/entries.yaml: FIRST without occupancy anticipation, which takes three
# quarters of the time, THEN with it. CONFIG=NAME trains with that configuration alone.
GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU && echo yes)
EXTRA := $(if $(GPU),[cuda],)
CONFIG ?= $(if $(GPU),pointnav_depth_h200)
FIRST := --config pointnav_waypoint_cpu --env.map.anticipation "" --dagger.total-frames 204_800
THEN := --config pointnav_waypoint_cpu --dagger.expert-until 0 --dagger.learning-rate 3e-4 --dagger.total-frames 16_384
OUT ?= runs/pointnav
SEED ?= 0
N ?= 10000

EXTRAS := viewer export ros2 video adapters vision collada draco basisu

.PHONY: train test plain lint docs wheel fuzz $(EXTRAS)

train: $(VENV)/.installed
ifneq ($(CONFIG),)
	$(RUN) -m batchnav train --config $(CONFIG) --out $(OUT) --seed $(SEED)
else
	$(RUN) -m batchnav train $(FIRST) --out $(OUT)/first --seed $(SEED)
	$(RUN) -m batchnav train $(THEN) --out $(OUT) --seed $(SEED) --init-from $(OUT)/first
endif
	$(RUN) -m batchnav evaluate $(OUT) --split val --out $(OUT)/report --report

# The installation stays editable.
$(EXTRAS): $(VENV)/.installed
	$(INSTALL) --editable '.[$@]'

test: $(VENV)/.installed-dev
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST)

plain: $(VENV)/.installed-dev
	NUMBA_DISABLE_JIT=1 $(RUN) -m pytest -m plain -k "not OpenGL" $$(grep -rl --include='test_*.py' 'mark[.]plain' tests)

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

wheel: $(VENV)/.installed-dev
	.ci/wheel

fuzz: $(VENV)/.installed-dev
	$(RUN) tests/fuzz/harness.py --number $(N) --seed $(SEED)

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy
	$(RUN) -m eval.publish.tables --check
	$(RUN) .ci/sizes
	$(RUN) .ci/sources
	$(RUN) .ci/signatures

$(VENV)/.installed: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) torch
	$(INSTALL) --editable '.$(EXTRA)'
	touch $@

# With all that `.installed` has.
$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) --editable '.[dev]'
	touch $(VENV)/.installed $@
