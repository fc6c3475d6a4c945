# `make` alone lists what there is.

.DEFAULT_GOAL := help
.PHONY: help demo serve test lint format clean FORCE

# The Python that .venv is made with; the newest that works unless given: make demo PYTHON=/path/to/python3
PYTHON ?=
PORT ?= 8000

# What the caller's shell has set for another project must not lead the example to that project's database.
unexport DATABASE_URL DEBUG DJANGO_SETTINGS_MODULE SECRET_KEY

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/installed ## Load a small shop, run its background jobs, and tell what happened
	@exec .venv/bin/python manage.py demo

serve: .venv/installed ## Run that shop: web and worker, with a login for the admin (PORT=8000)
	@exec .venv/bin/python manage.py serve $(PORT)

clean: ## Remove the virtual environment, the demo's data and caches
	rm -rf .venv .venv-* var build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A pyenv shim may be there and not work, and Debian's python3 may lack venv: so each is tried, not looked up.
USABLE := import ensurepip, sqlite3, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))

.venv/installed: pyproject.toml
	@set -eu; \
	chosen="$(PYTHON)"; \
	for each in $${chosen:-python3.13 python3.12 python3.11 python3}; do \
	  if "$$each" -c '$(USABLE)' >/dev/null 2>&1; then python="$$each"; break; fi; \
	done; \
	if [ -z "$${python:-}" ]; then \
	  echo "No usable Python 3.11 or later: $${chosen:-python3.13, python3.12, python3.11 and python3} did not work." >&2; \
	  echo "Install one (on Debian and Ubuntu with its -venv package), or name it: make demo PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	echo "Making .venv with $$("$$python" --version) ..."; \
	"$$python" -m venv --clear .venv; \
	echo "Installing bunderstack-django, Django and what else the example needs ..."; \
	.venv/bin/python -m pip install -qq --disable-pip-version-check -e . 'django-environ>=0.12'; \
	echo "Installed Django $$(.venv/bin/python -m django --version)."; \
	echo "$(PYTHON)" > $@

# Made anew when another PYTHON is given than the one it was made with.
ifneq ($(PYTHON),)
ifneq ($(PYTHON),$(shell cat .venv/installed 2>/dev/null))
.venv/installed: FORCE
endif
endif

# The suite's own environment: make test PYTHON=python3.12 DJANGO=5.2 VENV=.venv-3.12-5.2 ARGS="-k dedupe"
VENV ?= .venv-test
DJANGO ?=
ARGS ?=

test: $(VENV)/installed ## Run the suite on SQLite, PostgreSQL and MariaDB (ARGS="--quick -k dedupe")
	@exec $(VENV)/bin/python tests/matrix.py $(ARGS)

lint: $(VENV)/installed ## Format, style, types, import contracts, migrations
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	PYTHONPATH=. $(VENV)/bin/lint-imports --no-cache
	DJANGO_SETTINGS_MODULE=tests.settings $(VENV)/bin/python -m django makemigrations --check --dry-run

format: $(VENV)/installed ## Format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

$(VENV)/installed: pyproject.toml
	@set -eu; \
	for each in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	  if "$$each" -c '$(USABLE)' >/dev/null 2>&1; then python="$$each"; break; fi; \
	done; \
	if [ -z "$${python:-}" ]; then \
	  echo "No usable Python 3.11 or later was found; name one: make test PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$python" --version) ..."; \
	"$$python" -m venv --clear $(VENV); \
	pip="$(VENV)/bin/python -m pip install -q --disable-pip-version-check"; \
	$$pip -e '.[dev]' $(if $(DJANGO),'django==$(DJANGO).*'); \
	$$pip -e '.[mysql]' >/dev/null 2>&1 || echo "!!! mysqlclient could not be built (Debian: libmariadb-dev pkg-config gcc): MariaDB is left out."; \
	touch $@

include benchmarks/targets.mk
