# `make demo` and `make test` each work alone on a machine that has only Python 3.11 or newer and make.

PYTHON ?= python3
JOBS ?= 2
DEFAULT := not audit and not paper and not peer and not engines

# Each worker begins with half of the suite, so that what a module's tests share is made once, and takes over what the
# other has left. Tests start hundreds of processes, which read bytecode that the first of them wrote.
WORKERS = -n $(JOBS) --dist worksteal
export PYTHONDONTWRITEBYTECODE :=

# As many workers as cores, each with one thread: DuckDB takes the first variable for the number of its own, where
# nothing else is said. Tests of several threads say how many. A second thread has no share of tables of a few thousand
# rows, and costs a quarter of the processor time; audits and DuckDB 2.0 run with all of them.
ALONE_ON_A_CORE := SLURM_CPUS_ON_NODE=1 OPENBLAS_NUM_THREADS=1

BIN := .venv/bin
BIN2 := .venv-duckdb2/bin
RUNTIME := .venv/runtime.stamp
DEVELOPMENT := .venv/development.stamp
DUCKDB2 := .venv-duckdb2/duckdb2.stamp
BIN_SPARK := .venv-spark/bin
SPARK := .venv-spark/spark.stamp
BIN_DBT := .venv-dbt/bin
DBT := .venv-dbt/dbt.stamp

INSTALL := -m pip install -qq --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes --only-binary :all:
# pyspark-client is published as source alone: pure Python, with its hash, built by the setuptools of build.lock
SOURCE := --no-build-isolation --no-binary pyspark-client
EDITABLE := $(INSTALL) --no-deps --no-build-isolation --editable .
COMPILE := $(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
  --no-strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links

# $(call environment,folder): an environment of a Python that is new enough; one that works is kept.
define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "dpduck needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
  echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1) || { \
  echo "'$(PYTHON)' could not make an environment; on Debian and Ubuntu install python3-venv."; exit 1; } >&2
endef

.DEFAULT_GOAL := help
.PHONY: help demo quick test times test-duckdb2 lint format bench audit engines papers peers site pictures figures notebooks wheel rehearsal lock clean

help:
	@echo 'make demo          a clinic of a million visits: policy, explanation, release, budget'
	@echo 'make test          the default suite; make quick: what takes less than a minute of it'
	@echo 'make times         measures which tests take long, and are tried in turn'
	@echo 'make test-duckdb2  the core suite on DuckDB 2.0'
	@echo 'make lint          ruff and mypy; make format repairs what can be repaired'
	@echo 'make bench         every benchmark that gates'
	@echo 'make audit         long statistical audits, and all that make test tries in turn'
	@echo 'make papers        the figures of the papers, as tests; make figures: their pictures in docs/, in some minutes'
	@echo 'make peers         other systems'
	@echo 'make engines       tests of tables that lie in Spark; needs Java 17'
	@echo 'make site          the docs as a site, in dist/site/; make pictures: its pictures anew'
	@echo 'make notebooks     the notebooks anew, with their outputs'
	@echo 'make wheel         the wheel, in dist/'
	@echo 'make rehearsal     a release but for publishing it: two builds, every Python and DuckDB, upgrade, SBOM, licences'
	@echo 'make lock          the lock files anew from pyproject.toml (UPGRADE=--upgrade for newer versions)'
	@echo 'make clean         everything that was made, environments included'

$(RUNTIME): requirements/runtime.lock requirements/build.lock pyproject.toml
	$(call environment,.venv)
	@echo 'installing what dpduck needs into .venv ...'
	@$(BIN)/python $(LOCKED) -r requirements/runtime.lock -r requirements/build.lock
	@$(BIN)/python $(EDITABLE)
	@touch $@

$(DEVELOPMENT): requirements/development.lock requirements/build.lock pyproject.toml
	$(call environment,.venv)
	@echo 'installing what development needs into .venv ...'
	@$(BIN)/python $(LOCKED) -r requirements/build.lock
	@$(BIN)/python $(LOCKED) $(SOURCE) -r requirements/development.lock
	@$(BIN)/python $(EDITABLE)
	@touch $(RUNTIME) $@

$(DUCKDB2): requirements/duckdb2.lock pyproject.toml
	$(call environment,.venv-duckdb2)
	@echo 'installing DuckDB 2.0 into .venv-duckdb2 ...'
	@$(BIN2)/python $(LOCKED) -r requirements/duckdb2.lock
	@$(BIN2)/python $(EDITABLE)
	@touch $@

# tests/dbt starts the command of this environment; without it they are skipped
$(DBT): requirements/dbt.lock requirements/build.lock pyproject.toml
	$(call environment,.venv-dbt)
	@echo 'installing dbt into .venv-dbt ...'
	@$(BIN_DBT)/python $(LOCKED) -r requirements/dbt.lock
	@$(BIN_DBT)/python $(EDITABLE)
	@touch $@

# Spark is published as source alone, its jars included: 500 MB
$(SPARK): requirements/spark.lock requirements/build.lock pyproject.toml
	$(call environment,.venv-spark)
	@echo 'installing Spark into .venv-spark ...'
	@$(BIN_SPARK)/python $(LOCKED) -r requirements/build.lock
	@$(BIN_SPARK)/python $(LOCKED) --no-build-isolation --no-binary pyspark -r requirements/spark.lock
	@$(BIN_SPARK)/python $(EDITABLE)
	@touch $@

demo: $(RUNTIME)
	@$(BIN)/dpduck demo

# Without kills, servers and statistics (tests/test_house.py), and without the clinics of the golden refusals.
QUICK := tests/values tests/algebra tests/language tests/test_house.py tests/test_house_counts.py \
  tests/test_import_direction.py tests/test_reading_list.py

# What takes long is tried in turn, by a fresh seed that is printed; `make test PARTS=` runs all of it. What finds a
# planted fault (tests/planted) is in every run.
PARTS ?= --values 6 --slow 8

quick: $(DEVELOPMENT)
	$(ALONE_ON_A_CORE) $(BIN)/python -m pytest -q $(WORKERS) -m '$(DEFAULT)' $(PARTS) $(QUICK) \
	  --ignore=tests/language/test_golden.py

# pytest fails by itself when it finds no test at all.
test: $(DEVELOPMENT)
	$(ALONE_ON_A_CORE) $(BIN)/python -m pytest -q $(WORKERS) -m '$(DEFAULT)' $(PARTS) --durations=10

# Measures every function anew, and lists those that take long (tests/support/long.py).
times: $(DEVELOPMENT)
	$(ALONE_ON_A_CORE) $(BIN)/python -m pytest -q $(WORKERS) -m '$(DEFAULT)' --times

# What another version of DuckDB cannot change is tested once. NEVER and ALONE never see it (tests/test_house.py holds
# that). COVERAGE is decided by noise and recovery, after counts that other tests compare on both versions. The rest
# are the rules of the house, and benchmarks, which run on the version that is pinned.
NEVER := algebra strategies kernel/noise
ALONE := kernel/counting/test_exact_counts $(patsubst %,kernel/queries/test_%,chosen_buckets count_sketch families \
  lazy_histogram measure noisy_total operators session_gate summary_sampler) $(patsubst %,mechanisms/summaries/test_%,estimators guess \
  priorities summary_audit summary_neighbours summary_ranges) $(patsubst %,mechanisms/synthetic/test_%,fit mwem) \
  $(patsubst %,mechanisms/sparse/test_%,hypothesis session_plan) $(patsubst %,values/test_%,accounting)
COVERAGE := $(patsubst %,mechanisms/cubes/test_%,coverage nonnegative_intervals sum_coverage) \
  mechanisms/keys/test_key_coverage
RULES := test_papers test_papers_items test_figures test_benchmarks test_house test_house_counts \
  test_import_direction test_reading_list test_faults test_long
ONCE := $(NEVER:%=--ignore=tests/%) $(patsubst %,--ignore=tests/%.py,$(ALONE) $(COVERAGE) $(RULES))

# PART=3: of every three test functions one, with one set of its values, by a fresh seed, which is printed.
SAMPLE := $(if $(PART),--sample $(PART):$(shell echo $$$$))
test-duckdb2: $(DUCKDB2)
	$(if $(SAMPLE),@echo 'make test-duckdb2 PART=$(PART) SAMPLE="$(SAMPLE)" runs the same again')
	$(BIN2)/python -m pytest -q $(WORKERS) -m '$(DEFAULT)' $(ONCE) $(SAMPLE)

lint: $(DEVELOPMENT)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

format: $(DEVELOPMENT)
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

# One after the other, alone on the machine; all of them run, any failure fails. Helpers begin with an underscore.
NAMED = $(patsubst %.py,%,$(subst /,.,$(sort $(wildcard benchmarks/$(1)/[a-z]*.py))))
GATES = $(call NAMED,speed) $(filter-out %.prior_weight,$(call NAMED,papers)) $(call NAMED,peers)

bench: $(DEVELOPMENT)
	@test -n "$(GATES)" || { echo 'there is no benchmark' >&2; exit 1; }
	@failed=; for gate in $(GATES); do \
	  echo "== $$gate"; $(BIN)/python -m $$gate || failed="$$failed $$gate"; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

audit: $(DEVELOPMENT)
	$(BIN)/python -m pytest $(WORKERS) -m '(audit or sampled or slow) and not paper and not peer and not engines'

# Spark's own processes, which need Java 17: behind Spark Connect, and in the process of the tests.
engines: $(SPARK)
	$(BIN_SPARK)/python -m pytest -q -m engines -k connect tests/engines
	$(BIN_SPARK)/python -m pytest -q -m engines -k classic tests/engines

papers: $(DEVELOPMENT)
	$(BIN)/python -m pytest $(WORKERS) -m paper

peers: $(DEVELOPMENT)
	$(BIN)/python -m pytest -m peer
	$(BIN)/python -m benchmarks.peers.table --environments .venv-peers --write docs/peers.md
	$(BIN)/python -m benchmarks.peers.several_rows --environments .venv-peers --write docs/peers.md

site: $(DEVELOPMENT)
	$(BIN)/python site/build.py

# Their outputs anew: a change of what they show is committed with them.
notebooks: $(DEVELOPMENT)
	$(BIN)/python notebooks/run.py

pictures: $(DEVELOPMENT)
	$(BIN)/python -m benchmarks.pictures

# The figures of the four papers, in docs/pictures/papers/; docs/papers.md says where their data are to be had.
figures: $(DEVELOPMENT)
	$(BIN)/python -m benchmarks.figures

wheel: $(DEVELOPMENT)
	@rm -rf dist
	$(BIN)/python -m hatchling build --target wheel

# What is committed is built and tried; `.ci/rehearse` says what it needs and what can be set.
rehearsal: $(DEVELOPMENT)
	@.ci/rehearse

lock: $(DEVELOPMENT)
	$(COMPILE) $(UPGRADE) pyproject.toml --group development --output-file requirements/development.lock
	$(COMPILE) pyproject.toml --constraint requirements/development.lock --output-file requirements/runtime.lock
	$(COMPILE) pyproject.toml --extra server --extra report --constraint requirements/development.lock \
	  --output-file requirements/server.lock
	$(COMPILE) --group rehearsal --output-file requirements/rehearsal.lock
	$(COMPILE) --group build --constraint requirements/development.lock --output-file requirements/build.lock
	@sed '/^pyspark-client==/,/[^\\]$$/d' requirements/development.lock > .venv/without-client.txt
	$(COMPILE) pyproject.toml --group spark --constraint .venv/without-client.txt --output-file requirements/spark.lock
	@sed '/^duckdb==/,/[^\\]$$/d' requirements/development.lock > .venv/without-duckdb.txt
	@echo 'duckdb==2.0.1' > .venv/duckdb2.txt
	$(COMPILE) pyproject.toml --group core --constraint .venv/without-duckdb.txt --override .venv/duckdb2.txt \
	  --output-file requirements/duckdb2.lock
	$(COMPILE) pyproject.toml --group dbt --constraint requirements/runtime.lock \
	  --output-file requirements/dbt.lock

clean:
	rm -rf .venv .venv-dbt .venv-duckdb2 .venv-peers .venv-spark dist build .hypothesis .mypy_cache .ruff_cache
	find dpduck tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
