"""What `kubectl kustomize` makes of every folder, object by object and as a whole."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmem.cluster.hardening import hardening_faults
from vmem.cluster.pods import pods_of
from vmem.cluster.rules import QUEUE, cluster_spec, groups, operator_faults
from vmem.cluster.serve_config import read_serve_config
from vmem.cluster.wiring import Given, wiring_faults

pytestmark = pytest.mark.k8s

OVERLAYS = ("dev", "gpu", "gpu-7b")
FOLDERS = [
    *(f"overlays/{name}" for name in OVERLAYS),
    *(f"overlays/{name}/jobs" for name in OVERLAYS),
    "monitoring",
    "examples/ingress",
    "examples/kueue",
]
KUBERNETES = ("1.32", "1.37")
"""The oldest and the newest release whose schemas every object of Kubernetes' own has to fit."""
OTHERS = {"ray.io", "monitoring.coreos.com", "milvus.io", "kueue.x-k8s.io"}


def _group_of(obj: dict[str, Any]) -> str:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    return group if group in OTHERS else ""


def _of(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [obj for obj in objects if obj["kind"] in kinds]


@pytest.mark.parametrize("release", KUBERNETES)
def test_kubernetes_takes_its_own_kinds_to_the_letter(
    release: str, rendered: Any, tmp_path: Path
) -> None:
    tool = shutil.which("kubernetes-validate")
    if tool is None:
        pytest.skip("there is no kubernetes-validate: make test-k8s brings one")
    own = [obj for obj in rendered(*FOLDERS) if not _group_of(obj)]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(own), encoding="utf-8")
    command = [tool, "--strict", "--no-warn", "-k", release, file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed for ") == len(own)


def test_kubernetes_refuses_a_key_that_it_does_not_know(rendered: Any, tmp_path: Path) -> None:
    tool = shutil.which("kubernetes-validate")
    if tool is None:
        pytest.skip("there is no kubernetes-validate: make test-k8s brings one")
    (budget, *_) = _of(rendered("overlays/dev"), "PodDisruptionBudget")
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump(budget | {"spec": {**budget["spec"], "minAvailible": 1}}))
    done = subprocess.run([tool, "--strict", file], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "minAvailible" in done.stdout + done.stderr


@pytest.mark.parametrize("folder", FOLDERS[:6])
def test_ray_kinds_fit_the_operators_definitions(
    folder: str, rendered: Any, ray_schemas: Any
) -> None:
    found = [obj for obj in rendered(folder) if _group_of(obj) == "ray.io"]
    assert found
    for obj in found:
        schema = ray_schemas[obj["kind"]]
        assert [error.message for error in schema.iter_errors(obj)] == []
    broken = obj | {"spec": {**obj["spec"], "rayVersions": "x"}}
    assert ["rayVersions" in error.message for error in schema.iter_errors(broken)] == [True]


@pytest.mark.parametrize("folder", FOLDERS[:6])
def test_ray_kinds_keep_the_operators_rules(folder: str, rendered: Any) -> None:
    assert [fault for obj in rendered(folder) for fault in operator_faults(obj)] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_everything_that_stands_together_meets(name: str, rendered: Any, given: Given) -> None:
    objects = rendered(
        f"overlays/{name}", f"overlays/{name}/jobs", "monitoring", "examples/ingress"
    )
    assert wiring_faults(objects, given) == []
    assert hardening_faults(objects) == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_rendered_serve_config_is_the_overlays_file(
    name: str, rendered: Any, k8s: Path
) -> None:
    (service,) = _of(rendered(f"overlays/{name}"), "RayService")
    text = service["spec"]["serveConfigV2"]
    assert text == (k8s / "overlays" / name / "serve.yaml").read_text(encoding="utf-8")
    assert read_serve_config(text, name)["vmem"].name == name


@pytest.mark.parametrize("folder", FOLDERS[:6])
def test_versions_come_from_one_place_and_the_lock(folder: str, rendered: Any, k8s: Path) -> None:
    versions = yaml.safe_load((k8s / "versions" / "kustomization.yaml").read_text())
    literals = dict(each.split("=") for each in versions["configMapGenerator"][0]["literals"])
    images = {f"{each['newName']}:{each['newTag']}" for each in versions["images"]}
    lock = (k8s.parent / "requirements.lock").read_text(encoding="utf-8")
    assert f"\nray=={literals['ray']} " in lock
    assert literals["milvus"] in images
    project = tomllib.loads((k8s.parent / "pyproject.toml").read_text(encoding="utf-8"))
    tags = {each["newTag"] for each in versions["images"] if each["name"].startswith("vmem-")}
    assert tags == {f"{project['project']['version']}-{kind}" for kind in ("cpu", "gpu")}
    for obj in rendered(folder):
        if cluster := cluster_spec(obj):
            assert cluster["rayVersion"] == literals["ray"]
        used = {c["image"] for pods in pods_of(obj) for c in pods.containers}
        assert used <= images
    written = [*k8s.rglob("*.yaml")]
    assert not [
        path
        for path in written
        if re.search(r"image: \S+:\S+", path.read_text()) and path.parent.name != "versions"
    ]


@pytest.mark.parametrize("name", OVERLAYS)
def test_jobs_wait_go_on_and_clean_up(name: str, rendered: Any) -> None:
    jobs = rendered(f"overlays/{name}/jobs")
    runs = [obj for obj in jobs if obj["kind"] == "RayJob"]
    assert {obj["metadata"]["labels"]["vmem/run"].partition("-")[0] for obj in runs} == {
        "build",
        "evaluate",
        "tables",
    }
    for job in runs:
        spec = job["spec"]
        assert job["metadata"]["labels"]["vmem/run"] == job["metadata"]["name"]
        assert job["metadata"]["labels"][QUEUE]
        assert spec["suspend"]
        assert spec["shutdownAfterJobFinishes"]
        assert spec["ttlSecondsAfterFinished"] > 0
        assert spec["backoffLimit"] > 0
        assert spec["submitterConfig"]["backoffLimit"] > 2  # KubeRay's own


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_ray_node_of_a_cluster_is_set_up_alike(name: str, rendered: Any) -> None:
    for obj in rendered(f"overlays/{name}", f"overlays/{name}/jobs"):
        cluster = cluster_spec(obj)
        if cluster is None:
            continue
        alike = []
        for _, group in groups(cluster):
            spec = group["template"]["spec"]
            container = spec["containers"][0]
            alike.append(
                {
                    **{key: container.get(key) for key in ("image", "env", "envFrom")},
                    "mounts": container["volumeMounts"],
                    "volumes": spec["volumes"],
                    "security": (spec["securityContext"], container["securityContext"]),
                }
            )
        assert all(each == alike[0] for each in alike)


@pytest.mark.parametrize("folder", FOLDERS[:6])
def test_no_secret_is_written_down(folder: str, rendered: Any) -> None:
    assert not _of(rendered(folder), "Secret")
    for obj in rendered(folder):
        for pods in pods_of(obj):
            for container in pods.containers:
                for each in container.get("env") or ():
                    if re.search("PASSWORD|TOKEN$|KEY|DATABASE_URL", each["name"]):
                        assert "secretKeyRef" in each["valueFrom"], each


def test_monitors_and_rules_fit_their_packaged_schema(rendered: Any, k8s: Path) -> None:
    """By the npm package @kubernetes-models/prometheus-operator, where make test-k8s put it."""
    node = shutil.which("node")
    modules = k8s.parent / ".venv" / "k8s" / "node_modules"
    if node is None or not modules.is_dir():
        pytest.skip("node or @kubernetes-models/prometheus-operator is missing: make test-k8s")
    objects = [o for o in rendered("monitoring") if _group_of(o) == "monitoring.coreos.com"]
    assert {obj["kind"] for obj in objects} == {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
    script = """
      const operator = await import(process.argv[1]);
      const objects = JSON.parse(process.argv[2]);
      for (const object of objects) new operator[object.kind](object).validate();
      console.log(objects.length);
    """
    index = modules / "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/index.js"

    def run(given: list[Any]) -> subprocess.CompletedProcess[str]:
        command = [node, "--input-type=module", "-e", script, index, json.dumps(given)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=modules)

    done = run(objects)
    assert done.stdout.strip() == str(len(objects)), done.stderr
    broken = objects[0] | {"spec": {**objects[0]["spec"], "podMetricsEndpoints": "metrics"}}
    assert run([broken]).returncode != 0
