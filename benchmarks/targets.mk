# Included by the Makefile. PYTHON chooses the interpreter; BENCH_ARGS adds options (--help lists them).

BENCH_VENV := .venv-bench
BENCH_ARGS ?=
BENCH_PYTHON = $(or $(PYTHON),$(shell \
	for python in python3.13 python3.12 python3 \
		$(HOME)/.pyenv/versions/3.13*/bin/python3 $(HOME)/.pyenv/versions/3.12*/bin/python3; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$$python" && break; \
	done))

.PHONY: bench bench-quick

bench: $(BENCH_VENV)/.installed  ## Measure against other queues, three rounds (about 10 minutes)
	@$(BENCH_VENV)/bin/python -m benchmarks $(BENCH_ARGS)

bench-quick: $(BENCH_VENV)/.installed  ## The same with small numbers, one round (under a minute)
	@$(BENCH_VENV)/bin/python -m benchmarks --quick $(BENCH_ARGS)

$(BENCH_VENV)/.installed: benchmarks/peers.txt pyproject.toml
	@test -n "$(BENCH_PYTHON)" || { echo "The benchmarks need Python 3.12 or 3.13: make bench PYTHON=/path/to/python3.13"; exit 2; }
	@"$(BENCH_PYTHON)" -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install -q -e ".[postgres]"
	@$(BENCH_VENV)/bin/pip install -q -e ".[mysql]" || echo "!!! mysqlclient could not be installed: MariaDB is skipped."
	@while read -r peer; do \
		$(BENCH_VENV)/bin/pip install -q "$$peer" || echo "!!! $$peer could not be installed: it is skipped."; \
	done < benchmarks/peers.txt
	@touch $@
