"""What k8s/README.md names is there: folders, versions of charts, jobs."""

import re
from pathlib import Path

import pytest
import yaml

OVERLAYS = ("dev", "gpu", "gpu-7b")


@pytest.fixture(scope="module")
def readme(k8s: Path) -> str:
    return (k8s / "README.md").read_text(encoding="utf-8")


def test_every_folder_and_file_named_exists(readme: str, k8s: Path) -> None:
    named = set(re.findall(r"k8s/[\w./-]+", readme.replace("$OVERLAY", "dev")))
    assert len(named) > 5
    assert not [path for path in named if not (k8s.parent / path.rstrip(".")).exists()]


def test_charts_are_installed_in_the_version_of_the_one_place(readme: str, k8s: Path) -> None:
    versions = yaml.safe_load((k8s / "versions" / "kustomization.yaml").read_text())
    literals = dict(each.split("=") for each in versions["configMapGenerator"][0]["literals"])
    assert set(re.findall(r"\$\(version ([a-z-]+)\)", readme)) == set(literals) - {"ray", "milvus"}


def test_every_job_is_told_of(readme: str, k8s: Path) -> None:
    for overlay in OVERLAYS:
        text = (k8s / "overlays" / overlay / "jobs" / "jobs.yaml").read_text(encoding="utf-8")
        for job in yaml.safe_load_all(text):
            assert job["metadata"]["name"] in readme


def test_namespaces_of_operators_are_those_that_policies_open(readme: str, k8s: Path) -> None:
    opened = {
        name
        for path in k8s.rglob("*.yaml")
        for name in re.findall(r"kubernetes.io/metadata.name: ([a-z-]+)", path.read_text())
    }
    made = set(re.findall(r"--namespace ([a-z-]+)", readme)) | {"vmem", "vmem-milvus"}
    assert opened - {"kube-system"} <= made
