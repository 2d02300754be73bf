# Two commands are the front door: `make run` and `make test`. Both set everything up by themselves.
.DEFAULT_GOAL := help
BIN := .venv/bin
LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-cache
TYPES = $(BIN)/pyrefly check --output-format min-text
# Three at a time, unless a jobserver of `make -j` is there.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j3)
UV = $$(command -v uv || echo $(BIN)/uv)

.PHONY: help run test lint format types unit test-proof soak fuzz bench bench-compare docs site api lock dist image-check unit-check deploy-lint mutate breaks clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.venv/.ready-run: pyproject.toml requirements.lock tools/setup
	@sh tools/setup run

.venv/.ready-dev: pyproject.toml requirements-dev.lock tools/setup
	@sh tools/setup dev

run: .venv/.ready-run ## start the gateway on a model inside the process and print lines to try it with
	@$(BIN)/mustcall models pull
	@$(BIN)/mustcall serve $(if $(PORT),--port $(PORT))

test: .venv/.ready-dev chromium ## everything CI checks: lint, types and unit
	@$(MAKE) --no-print-directory $(JOBS) checks unit

# Behind the tests: these are collected by one process, which all others wait for. Not far behind: beside other
# programs, what has a much lower priority hardly runs at all.
.PHONY: checks
checks:
	@nice -n 2 $(MAKE) --no-print-directory lint types

lint: .venv/.ready-dev ## style and layer rules
	$(LINT)

.PHONY: chromium
chromium:
	@sh tools/chromium

types: .venv/.ready-dev ## pyrefly in strict mode
	$(TYPES)

unit: .venv/.ready-dev chromium ## the tests
	$(BIN)/pytest --workers auto -q

test-proof: .venv/.ready-dev ## the tests four times: under load, in another order, with other hashes, stopped again and again (ONLY=…; SEED=…)
	$(BIN)/python tools/proof.py $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

soak: .venv/.ready-dev ## 100,000 turns against the adversary, and as many where it is trusted (TURNS=…; SEED=… tells one turn again), 300 runs killed and resumed, every attack, many new examples for each property, the model itself
	$(BIN)/python tools/soak.py $(if $(TURNS),--turns $(TURNS)) $(if $(SEED),--seed $(SEED))
	$(if $(SEED),,$(BIN)/python tools/soak.py --warm $(if $(TURNS),--turns $(TURNS)))
	$(if $(SEED),,$(BIN)/python tools/crash.py --runs 200 --points --zombies 24)
	$(if $(SEED),,$(BIN)/python tools/crash.py --runs 100 --points --zombies 24 --postgres)
	$(if $(SEED),,$(BIN)/python tools/attack.py)
	$(if $(SEED),,MUSTCALL_TEST_PROFILE=deep MUSTCALL_TEST_MODEL=real $(BIN)/pytest --workers auto -q)

fuzz: .venv/.ready-dev ## fuzz all that reads bytes of others, guided by coverage where atheris is installed (MINUTES=… each; TARGETS=…)
	$(BIN)/python tools/fuzz.py $(if $(MINUTES),--minutes $(MINUTES)) $(TARGETS)

bench: .venv/.ready-dev ## what the gateway and the dialects cost, as ratios
	$(BIN)/mustcall bench $(if $(JSON),--json $(JSON))
	$(BIN)/python benchmarks/client.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/dialects.py
	$(BIN)/python benchmarks/page.py

bench-compare: .venv/.ready-dev ## the gateway against an earlier run (OLD=…; NEW=… to compare two files)
	@test -n "$(OLD)" || { echo "name the earlier run: make bench-compare OLD=old.json (written by: make bench JSON=old.json)"; exit 2; }
	$(BIN)/mustcall bench --compare $(OLD) $(if $(NEW),--results $(NEW))

docs: .venv/.ready-dev ## write the generated pages of docs/ anew
	$(BIN)/python tools/pages.py
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/rules.py
	$(BIN)/python tools/breaks.py --page

site: .venv/.ready-dev ## build the documentation as a site in build/site; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

api: .venv/.ready-dev ## list what breaks users' code since the latest release (WRITE=1: make today's API the one to compare with)
	$(BIN)/python tools/api.py $(if $(WRITE),--write)

format: .venv/.ready-dev ## rewrite the code in house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve the dependencies anew: for running, for the tests, for the image
	@for part in requirements-dev.lock:--group=dev "requirements.lock:--extra=local -c requirements-dev.lock" \
	    "requirements-image.lock:--extra=local --extra=postgres -c requirements-dev.lock"; do \
	  $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate --no-emit-index-url $${part#*:} pyproject.toml -o $${part%%:*} || exit 1; \
	done

dist: .venv/.ready-run ## build the wheel and the sdist, test the wheel as installed, write the SBOM
	rm -rf dist
	$(UV) build --quiet
	$(BIN)/python tools/installed_check.py dist
	PYTHONWARNINGS=ignore $(UV) tool run --quiet --from cyclonedx-bom cyclonedx-py requirements --output-reproducible requirements.lock \
	  --pyproject pyproject.toml --output-file dist/mustcall.cdx.json

image-check: .venv/.ready-dev ## carry the Dockerfile out without a daemon and check its container (Linux, root, debootstrap)
	$(BIN)/python tools/image_check.py

unit-check: .venv/.ready-dev ## start the systemd unit under a real systemd in namespaces (Linux, root, debootstrap)
	$(BIN)/python tools/unit_check.py

deploy-lint: .venv/.ready-dev ## the workflows, Dockerfile, compose file, unit and chart, each by its own linter
	sh tools/deploy_lint

mutate: .venv/.ready-dev ## what the tests notice: the share of changed expressions that fail a test (PACKAGES=…; SAMPLE=…)
	$(BIN)/python tools/mutate.py $(or $(PACKAGES),policy dialects wire) $(if $(SAMPLE),--sample $(SAMPLE))

breaks: .venv/.ready-dev ## break the product on purpose, rule by rule, and see the tests that name the rule fail (RULE=…)
	$(BIN)/python tools/breaks.py --save $(foreach rule,$(RULE),--rule $(rule))

clean: ## remove what the commands made
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis
