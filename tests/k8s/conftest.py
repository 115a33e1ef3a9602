"""Rendered overlays, and what their objects may refer to that nobody here makes."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from vmem.cluster.wiring import Given

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
OVERLAYS = ("dev", "gpu", "gpu-7b")
SECRET = re.compile(r"^\| `([a-z-]+)` \| ([^|]*) \|", re.MULTILINE)
Object = dict[str, Any]
Rendered = Callable[..., list[Object]]


@pytest.fixture(scope="session")
def k8s() -> Path:
    """The folder of the manifests."""
    return K8S


@pytest.fixture(scope="session")
def rendered() -> Rendered:
    """Objects of folders below k8s/, as `kubectl kustomize` makes them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl: make test-k8s brings one")

    @cache
    def render(folder: str) -> str:
        done = subprocess.run(
            [kubectl, "kustomize", K8S / folder], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr  # deprecated fields
        return done.stdout

    def of(*folders: str) -> list[Object]:
        return [obj for folder in folders for obj in yaml.safe_load_all(render(folder))]

    return of


@pytest.fixture(scope="session")
def given() -> Given:
    """The Secrets that k8s/README.md tells to make, and what KubeRay makes of the RayService."""
    text = (K8S / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| Secret | keys |") :].partition("\n\n")[0]
    rows = dict(SECRET.findall(table))
    return Given(
        secrets={name: frozenset(re.findall(r"`([^`]+)`", keys)) for name, keys in rows.items()},
        services={"vmem-serve-svc": frozenset({"serve"})},
    )


@pytest.fixture(scope="session")
def ray_schemas() -> dict[str, jsonschema.Draft202012Validator]:
    """Strict schemas of the kinds of ray.io, made from KubeRay's own definitions."""
    path = ROOT.parent / "shared" / "crds" / "rayio_v1.schema.json"
    if not path.is_file():
        pytest.skip(f"there are no schemas of ray.io at {path}: our own checks still run")
    schemas = json.loads(path.read_text(encoding="utf-8"))
    return {kind: jsonschema.Draft202012Validator(schema) for kind, schema in schemas.items()}
