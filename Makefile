# Everything runs in .venv, which `make` builds from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
# Each file's tests stay together: many share a federation of processes. In the order of their names, so that the last
# files are short ones and no processor waits for a long one at the end.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# Tests start many processes. Where the environment forbids to keep compiled modules, each would compile them all.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

.PHONY: foreign-party checks coverage mutants wheel-test crate-validator help demo test test-more test-all fuzz lint docs notebooks screenshots bench bench-science proto clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt deploy/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "radofed needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python deploy/install.py --editable all dev
	$(BIN)/python -c 'import radofed.cli.ready'  # compiles what the demo and the tests would wait for
	@touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python deploy/install.py --editable all dev docs
	@touch $(DOCS_READY)

demo: $(READY)  ## four organisations learn over gRPC with real encryption: whole records protected, then rados
	$(BIN)/rado demo

# Two tiers: what is run at each change, within 300 loops of ten million squares of processor time (the last line says
# how many it took), and the variants, browser pages at two widths and long runs of the same. `.ci/run` runs both.
# `make lint` runs the two folders that are left out here.
test: $(READY)  ## the tests, about three minutes on two cores
	$(PYTEST) $(PARALLEL) --ignore=tests/structure --ignore=tests/deploy

test-more: $(READY) foreign-party  ## variants and long runs of the tests, and the console in a browser, about ten minutes on two cores
	$(PYTEST) $(PARALLEL) -m 'more and not slow'

test-all: $(READY) foreign-party  ## the tests, the slow statistical runs, and more examples of each property
	PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(PYTEST) $(PARALLEL) -m '' --hypothesis-profile thorough

# Without Node.js, or these packages, the tests of that party are skipped, and say so.
foreign-party:  ## the packages of the party in JavaScript that tests run beside ours, in tests/foreign_party
	@cd tests/foreign_party && { test node_modules/.package-lock.json -nt package-lock.json || \
		npm ci --ignore-scripts --no-audit --no-fund || \
		echo "these packages could not be installed: tests of the party in JavaScript will be skipped" >&2; }

checks: $(READY)  ## break every security check and see its test fail; find tests of new checks: tests/checks/find.py
	$(BIN)/python -m tests.checks.running

# The wheel in an environment of its own: what the checkout has and the wheel lacks fails here.
wheel-test: $(READY)  ## the end-to-end tests against the built wheel, in a directory without the checkout
	rm -rf build/wheel
	mkdir -p build/wheel/away/docs/how-to
	$(BIN)/python -m hatchling build -t wheel -d build/wheel
	cd dpcore/research && ../../$(BIN)/python -m hatchling build -t wheel -d ../../build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python deploy/install.py --only-needed learner report metrics \
		--with hypothesis --with pytest --with pytest-timeout --with pytest-xdist
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps build/wheel/*.whl
	cp -R tests pyproject.toml build/wheel/away
	cp docs/how-to/use-python.md docs/how-to/use-a-model-elsewhere.md build/wheel/away/docs/how-to
	cd build/wheel/away && ../venv/bin/python -m pytest $(PARALLEL) tests/end_to_end
	rm -rf build/wheel

coverage: $(READY)  ## branch coverage of the mathematics, the wire and the roles: at least 95 %
	rm -f build/.coverage*
	mkdir -p build
	$(PYTEST) $(PARALLEL) -m 'not slow' --cov --cov-report=term:skip-covered

FUZZ_SECONDS ?= 300
fuzz: $(READY)  ## coverage-guided fuzzing of every parser, five minutes; FUZZ_SECONDS=N and FUZZ_TARGETS="..." change that
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
		$(BIN)/python deploy/install.py --only-needed fuzz
	PYTHONPATH=.:protos nice -n 10 $(BIN)/python -m tests.fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

mutants: $(READY)  ## mutation testing of what protects; results are kept in mutants; MODULES="ledger wire/query.py" chooses
	@$(BIN)/python -c 'import mutmut' 2>/dev/null || \
		$(BIN)/python deploy/install.py --only-needed mutation
	PYTHONPATH=.:protos nice -n 15 $(BIN)/python -m tests.mutation $(MODULES)

lint: $(READY)  ## ruff, mypy --strict, import contracts and circles, buf lint and breaking, bindings, samples of deploy/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests
	$(BIN)/lint-imports
	cd protos && ../$(BIN)/buf lint
	cd protos && ../$(BIN)/buf breaking --against rado/v1/released.binpb
	$(BIN)/python -m pytest -q tests/protocol/test_bindings.py tests/structure tests/deploy

docs: $(DOCS_READY)  ## the documentation site in build/docs; it is built and read without the network
	$(BIN)/python -m docs.generate
	$(BIN)/python -m sphinx -q -E -n -W --keep-going -b html docs build/docs
	$(BIN)/python -m docs.generate.check_offline build/docs
	$(BIN)/python -m docs.generate.check_accessible build/docs
	@echo "open build/docs/index.html"

# It needs an older library than ours for what commands print, so it has an environment of its own.
crate-validator: tests/crates/validator.txt  ## the validator of RO-Crates, for `make test-more`
	test -x build/crate-validator/bin/python || $(PYTHON) -m venv build/crate-validator
	build/crate-validator/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement tests/crates/validator.txt

notebooks: $(DOCS_READY)  ## run the tutorials and store their outputs
	$(BIN)/python -m docs.generate.notebooks

screenshots: $(DOCS_READY)  ## draw the documentation's pictures in docs/pictures
	$(BIN)/python -m docs.generate.screenshots

bench: $(READY)  ## quick benchmarks; results in benchmarks/results
	$(BIN)/python -m benchmarks

bench-science: $(READY)  ## learning and privacy on all data sets, hours on all cores; results in benchmarks/results
	$(BIN)/python -m benchmarks --science

# The bindings are generated with the oldest tools that are supported, in an environment of their own.
proto:  ## regenerate protos/rado/v1/*_pb2*.py
	test -x .tools/bin/python || { $(PYTHON) -m venv .tools && .tools/bin/pip install --quiet --require-hashes --requirement protos/tools.txt; }
	rm -f protos/rado/v1/*_pb2*
	PATH="$(CURDIR)/.tools/bin:$$PATH" .tools/bin/python -m grpc_tools.protoc -I protos --python_out=protos --mypy_out=quiet:protos \
		protos/rado/v1/*.proto
	PATH="$(CURDIR)/.tools/bin:$$PATH" .tools/bin/python -m grpc_tools.protoc -I protos --grpc_python_out=protos \
		--mypy_grpc_out=quiet:protos protos/rado/v1/*_service.proto

clean:  ## remove what make and the tests built
	rm -rf .venv .tools build mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis
