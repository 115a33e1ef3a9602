# Two images of one application: `cpu` with the embedded models and llama.cpp, `gpu` with vLLM.
#
#   docker build --target cpu -t REGISTRY/vmem:0.1.0-cpu --build-arg TORCH_INDEX=URL .
#   docker build --target gpu -t REGISTRY/vmem:0.1.0-gpu .
#
# URL is the PyTorch project's index of CPU wheels; without it torch comes with CUDA. A build needs
# no secret. The steps are those of `make setup`.
FROM scratch AS code
COPY pyproject.toml README.md /app/
COPY vmem /app/vmem
COPY serve /app/serve
COPY jobs /app/jobs
COPY configs /app/configs

FROM python:3.11.14-slim-bookworm AS packages

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# KubeRay's probe of a serving pod asks with wget. Debian drops old versions from its mirrors, so
# that a pinned one soon could not be built.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes wget \
    && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore

WORKDIR /app
COPY requirements.lock pyproject.toml ./
RUN pip install --no-deps --only-binary :all: --require-hashes -r requirements.lock

# torch and torchvision come without hashes: their builds for CPU and GPU differ.
ARG TORCH_INDEX=
RUN sed -nE 's/^ *"(torch(vision)?==[^"]+)".*/\1/p' pyproject.toml > torch.txt \
    && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r torch.txt

FROM packages AS gpu-packages
COPY requirements-gpu.lock ./
RUN pip install --no-deps --only-binary :all: --require-hashes -r requirements-gpu.lock

FROM packages AS cpu
COPY --from=code /app /app
RUN pip install --no-deps --no-build-isolation -e . \
    && python -m vmem.torchvision_cpu \
    && python -m compileall -q vmem serve jobs \
    && useradd --uid 1000 --create-home vmem
ENV HF_HUB_OFFLINE=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    PYTHONUNBUFFERED=1
USER 1000:1000
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=180s \
    CMD ["wget", "--tries=1", "--timeout=4", "-qO-", "http://127.0.0.1:8000/livez"]
# On one machine; KubeRay puts its own command in.
CMD ["vmem", "serve", "--config", "embedded"]

FROM gpu-packages AS gpu
COPY --from=code /app /app
RUN pip install --no-deps --no-build-isolation -e . \
    && python -m compileall -q vmem serve jobs \
    && useradd --uid 1000 --create-home vmem
ENV HF_HUB_OFFLINE=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    VLLM_NO_USAGE_STATS=1 \
    PYTHONUNBUFFERED=1
USER 1000:1000
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=600s \
    CMD ["wget", "--tries=1", "--timeout=4", "-qO-", "http://127.0.0.1:8000/livez"]
CMD ["vmem", "serve", "--config", "gpu-7b"]
