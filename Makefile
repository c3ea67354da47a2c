# make demo   a day in the life of two departments, in about a minute
# make api    the reference of the interfaces as files for a web server: docs/api
# make rush   [MATCH_S=240] [BALANCER=haproxy] the load of a match on real instances, by rules and with fixed numbers (20 minutes;
#             MATCH_S=60: a quick look)
# make flaps  [STEPS=100] [BALANCER=haproxy] scale-ups and scale-downs under load, and how many requests failed (2 minutes)
# make test   set everything up, then style, types and tests; the last line counts
# make test-long   the tests that take many seconds each, and nothing else: sieges, chaos, floods (5 minutes)
# make test-traces   what reads the public traces, and nothing else (docs/howto/simulator.md; the last line counts those left out)
# make test-oned ONED=URL ONED_AUTH=FILE ONED_URL=HOST:PORT   the product at a given OpenNebula, from the doctor to a web instance
# make chaos  [SEEDS=5000] [FIRST=0] more seeds of the simulated faults, on all cores; up to the first that fails
# make properties [ROUNDS=1] other examples than the test command's, up to the first that fails
# make hostile [ROUNDS=10] users, jobs, clients, balancers, instances and an oned that misbehave; a round of the campaign says
#             100,000 things that no program would, in about a minute
# make fuzz   [EXAMPLES=100] [SEED=0] requests made from the documents, EXAMPLES for each operation and caller: what is answered
#             otherwise than they say, as lines to paste
# make mutants [MODULES="services/domain/sharing …"] [MINUTES=60] small changes to cores and shared rules: which no test notices; goes on
#             where the last run ended
# make faults the real faults: processes killed, the broker restarted
# make failures [ROUNDS=3] HAProxy, its agent, NATS, an instance, a host killed under web load: what clients see
# make outage a health path, a release, a host, a rush, a lie under web load: how soon it is told, what it costs (2 minutes)
# make crash  [ROUNDS=1] the executor killed around every call to OpenNebula and every append
# make crash-history [ROUNDS=1] the monitor killed around every commit, archive file, mark, purge and snapshot
# make worlds [SECONDS=600] [WORLDS="3-all …"] small worlds, every order of events on the real cores, so long each
# make model  every world of the exhaustive model (about an hour)
# make contracts-release   openapi.json and asyncapi.json become those of the last release, with which make test compares
# make bench  [AGAINST=commit] [PAIRS=5] [QUICK=1] submit, throughput, spike, decisions and fold; with AGAINST in turn with another
#             commit's, as ratios (about 10 minutes; QUICK=1 PAIRS=1: whether it works)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Where Python is told not to keep what it has compiled, every process of a cloud would compile it again: half a second of CPU each
# instead of a third, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# ALLOW_MISSING=1 make test   without the tests whose tool cannot be had; the last line counts them

.PHONY: demo api rush flaps test test-long test-traces test-oned lint types chaos properties hostile fuzz mutants faults failures outage crash crash-history worlds model bench contracts-release setup tools clean

demo: $(READY)
	@for tool in haproxy passt; do sh deploy/tools.sh $$tool || true; done
	@$(BIN)/python -m phoenix.local.demo

api: $(READY)
	@sh deploy/tools.sh redoc || true
	@$(BIN)/python -m services.monitor.http.api_pages docs/api

MATCH_S ?= 240
STEPS ?= 100
BALANCER ?= haproxy
rush: setup
	@$(BIN)/python -m phoenix.rush --seconds $(MATCH_S) --balancer $(BALANCER)

flaps: setup
	@$(BIN)/python -m phoenix.rush.flaps --steps $(STEPS) --balancer $(BALANCER)

# Four workers on two cores: a third of the tests wait for real programs most of their time.
test: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 4 -m 'not long'

test-long: setup
	@$(BIN)/python -m pytest -q -n 4 -m long

test-traces: $(READY)
	@$(BIN)/python -m pytest -q -n 2 -m traces

test-oned: $(READY)
	@[ -n "$(ONED)" ] && [ -n "$(ONED_AUTH)" ] || { echo "test-oned: which OpenNebula? make test-oned ONED=http://HOST:2633/RPC2 ONED_AUTH=FILE ONED_URL=HOST:PORT (tests/oned/test_site.py)" >&2; exit 2; }
	@ONED="$(ONED)" ONED_AUTH="$(ONED_AUTH)" $(BIN)/python -m pytest -q -n 0 -m oned tests/oned

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

setup: $(READY) tools

TOOLS := haproxy passt prometheus prometheus-alertmanager chromium debootstrap systemd contracts redoc

# A tool that cannot be had is said here and fails the tests that need it; everything else goes on without.
tools:
	@for tool in $(TOOLS); do sh deploy/tools.sh $$tool || true; done

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(READY)

SEEDS ?= 5000
FIRST ?= 0
chaos: setup
	@$(BIN)/python -m tests.simulation.chaos_run --seeds $(SEEDS) --first $(FIRST)

ROUNDS ?= 1
properties: setup
	@for round in $$(seq $(ROUNDS)); do PROPERTIES=search $(BIN)/python -m pytest -q -x -n 2 tests/properties || exit 1; done

MINUTES ?= 60
mutants: setup
	@$(BIN)/python -m tests.mutation --minutes $(MINUTES) $(if $(MODULES),--modules $(MODULES))

faults: setup
	@PHOENIX_FAULTS_ROUNDS=3 $(BIN)/python -m pytest -q tests/integration/test_faults_kill.py tests/integration/test_faults_broker.py tests/integration/test_faults_down.py

failures: ROUNDS = 3
failures: setup
	@$(BIN)/python -m tests.support.failures_run --rounds $(ROUNDS)

outage: setup
	@$(BIN)/python -m tests.support.outage_run

crash: setup
	@$(BIN)/python -m tests.support.crash_run --rounds $(ROUNDS) 2>/dev/null

hostile: ROUNDS = 10
hostile: setup
	@HOSTILE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q -n 2 tests/hostile
	@$(BIN)/python -m tests.hostile.campaign --rounds $(ROUNDS)

EXAMPLES ?= 100
SEED ?= 0
fuzz: setup
	@$(BIN)/python -m tests.contracts.fuzz_run --examples $(EXAMPLES) --seed $(SEED)

crash-history: setup
	@$(BIN)/python -m tests.support.monitor_crash_run --rounds $(ROUNDS)

SECONDS ?= 600
WORLDS ?= all
worlds: setup
	@$(BIN)/python -m tests.simulation.worlds_explore $(WORLDS) --seconds $(SECONDS)

model: setup
	@PYTHONPATH=. $(BIN)/python tests/model/custody_model.py check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_bound check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_bound mutants
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_cordon check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_cordon mutants
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_departments check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_departments mutants
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_orders check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_orders mutants
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_boots check
	@PYTHONPATH=. $(BIN)/python -m tests.model.custody_model_boots mutants

PAIRS ?= 5
bench: setup
	@$(BIN)/python -m benchmarks.against $(AGAINST) --pairs $(PAIRS) $(if $(QUICK),--quick)

contracts-release: $(READY)
	@$(BIN)/python -m tests.contracts.compatibility --release

clean:
	rm -rf $(VENV) .tools build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
