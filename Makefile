# Two commands are the front door: `make run` and `make test`. Both set everything up by themselves.
.DEFAULT_GOAL := help
BIN := .venv/bin

.PHONY: help run test lint format types unit soak bench bench-compare docs lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.venv/.ready-run: pyproject.toml requirements.lock tools/setup
	@sh tools/setup run

.venv/.ready-dev: pyproject.toml requirements-dev.lock tools/setup
	@sh tools/setup dev

run: .venv/.ready-run ## start the gateway on a model inside the process and print lines to try it with
	@$(BIN)/mustcall models pull
	@$(BIN)/mustcall serve $(if $(PORT),--port $(PORT))

test: lint types unit ## everything CI checks

lint: .venv/.ready-dev ## style and layer rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: .venv/.ready-dev ## pyright in strict mode
	$(BIN)/basedpyright

unit: .venv/.ready-dev ## the tests
	$(BIN)/pytest -n auto -q

soak: .venv/.ready-dev ## 100,000 turns against the adversary (TURNS=…; SEED=… tells one turn again), 300 runs killed and resumed
	$(BIN)/python tools/soak.py $(if $(TURNS),--turns $(TURNS)) $(if $(SEED),--seed $(SEED))
	$(if $(SEED),,$(BIN)/python tools/crash.py --runs 200 --points --zombies 24)
	$(if $(SEED),,$(BIN)/python tools/crash.py --runs 100 --points --zombies 24 --postgres)

bench: .venv/.ready-dev ## what the gateway and the dialects cost, as ratios
	$(BIN)/mustcall bench $(if $(JSON),--json $(JSON))
	$(BIN)/python benchmarks/client.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/dialects.py

bench-compare: .venv/.ready-dev ## the gateway against an earlier run (OLD=…; NEW=… to compare two files)
	@test -n "$(OLD)" || { echo "name the earlier run: make bench-compare OLD=old.json (written by: make bench JSON=old.json)"; exit 2; }
	$(BIN)/mustcall bench --compare $(OLD) $(if $(NEW),--results $(NEW))

docs: .venv/.ready-dev ## write the generated pages of docs/ anew
	$(BIN)/python tools/pages.py
	$(BIN)/python tools/rules.py

format: .venv/.ready-dev ## rewrite the code in house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve the dependencies anew
	@for part in requirements.lock:--extra=local requirements-dev.lock:--group=dev; do \
	  $$(command -v uv || echo $(BIN)/uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate --no-emit-index-url $${part#*:} pyproject.toml -o $${part%%:*} || exit 1; \
	done

clean: ## remove what the commands made
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis
