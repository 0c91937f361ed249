# The front door. `make demo` and `make test` each work on a bare clone with Python 3.11 to 3.14 and make.
PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HASHED := $(PIP) --require-hashes -c constraints.txt
NEEDS := $(BIN)/python -c "import sys, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*p['dependencies'], *(n for e in sys.argv[1].split(',') for n in p['optional-dependencies'][e]), sep='\n')"
DEMO := .venv/.demo
READY := .venv/.ready
BROWSER := .venv/.browser
BENCH := .venv/.bench
OTHERS := .venv/.others
EXTRAS := arena,client,data,files,games,plots,postgres,river,serve,sklearn,spark,theory

unexport PYTHONDONTWRITEBYTECODE  # or each of the many processes of the tests compiles the package again

.PHONY: help demo test heavy processors attack crash arena bench load dist docs lint format clean

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

# pip checks hashes of all packages or of none, and an editable install has no hash: so first what treecal needs, by
# hash, and then treecal itself without its needs.
$(DEMO): pyproject.toml constraints.txt  # what the demo needs, and no more
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	sed -n '/^pip==/,/[^\\]$$/p' constraints.txt > .venv/pip.txt  # older ones do not take hashes from constraints
	$(PIP) --require-hashes --requirement .venv/pip.txt
	$(NEEDS) data,plots > .venv/needs.txt
	$(HASHED) --group build --requirement .venv/needs.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $(DEMO)

$(READY): $(DEMO)
	$(NEEDS) $(EXTRAS) > .venv/needs.txt
	$(HASHED) --group dev --group docs --group peers --requirement .venv/needs.txt
	grep -oE '^[^ #]+==[^ ]+' constraints.txt > .venv/versions.txt
	$(PIP) -c .venv/versions.txt --group torch
	touch $(READY)

$(BROWSER) $(BENCH) $(OTHERS): .venv/.%: $(READY)  # what few need: a browser's driver, peers of the load, MLflow
	$(HASHED) --group $*
	touch $@

demo: $(DEMO)  ## correct a real model, forecast real streams, and write the report
	$(BIN)/treecal demo --report treecal-demo.html --force

test: lint  ## lint, types, layers, then the tests and examples, in five minutes
	$(BIN)/python -m pytest

heavy: $(BROWSER) $(OTHERS) processors  ## the long checks, left out of `make test`, and all the others on emulated processors
	$(BIN)/python -m pytest -m heavy

processors: $(READY)  ## the tests of `make test` as older processors run them: no AVX-512; no AVX2 or FMA; any x86-64
ifeq ($(shell uname -m),x86_64)
	NPY_DISABLE_CPU_FEATURES="X86_V4" OPENBLAS_CORETYPE=Haswell $(BIN)/python -m pytest
	NPY_DISABLE_CPU_FEATURES="X86_V4 X86_V3" OPENBLAS_CORETYPE=Prescott \
		GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4 $(BIN)/python -m pytest
	NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= $(BIN)/python -m pytest
else
	@echo "only the features of x86-64 can be switched off."
endif

attack: $(READY)  ## hostile input by the thousand; ATTACK="--attack-seed random --attack-seconds 60" draws and bounds it
	$(BIN)/python -m pytest tests/attack -m attack $(ATTACK)

crash: $(READY)  ## kill the server and its database under load, KILLS=2000 times each; counts add up in .crash/counts.json
	$(BIN)/python -m tests.serve.crash --data sqlite --kills $(or $(KILLS),2000) --counts .crash/counts.json
	$(BIN)/python -m tests.serve.crash --data postgres --kills $(or $(KILLS),2000) --counts .crash/counts.json

arena: $(READY)  ## race the forecasters and print the tables of the docs; it resumes
	$(BIN)/python examples/arena.py

bench: $(READY)  ## measure speed, and print the table of the docs
	$(BIN)/python benchmarks/speed.py

load: $(BENCH)  ## put load on the server, and print the table of the docs; takes half an hour
	$(BIN)/python benchmarks/serve.py $(LOAD)

dist: $(DEMO)  ## build the wheel and the source distribution, the same bytes from the same commit
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist

docs: $(READY)  ## build the documentation into site/
	$(BIN)/zensical build --clean --strict
	$(BIN)/python clients/browser/build.py site/audit.html

lint: $(READY)  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## put the code in its style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and what the tools left
	rm -rf .venv site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
