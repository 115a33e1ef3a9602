"""Names, labels and ports that do not meet are said, one fault for one change."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from vmem.cluster.hardening import hardening_faults
from vmem.cluster.wiring import Given, wiring_faults

Object = dict[str, Any]
GIVEN = Given(secrets={"database": frozenset({"url"})}, services={"svc": frozenset({"serve"})})


def _object(kind: str, name: str, spec: Any = None, **more: Any) -> Object:
    return {"kind": kind, "metadata": {"name": name, "namespace": "n"}, "spec": spec or {}, **more}


def _database() -> Object:
    container = {
        "name": "db",
        "image": "db:1",
        "ports": [{"name": "db", "containerPort": 5432}],
        "envFrom": [{"configMapRef": {"name": "env"}}],
        "env": [{"name": "U", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "readinessProbe": {"httpGet": {"port": "db"}},
        "livenessProbe": {"httpGet": {"port": "db"}},
        "resources": {side: {"cpu": "1", "memory": "1Gi"} for side in ("requests", "limits")},
        "volumeMounts": [{"name": "files"}, {"name": "config", "subPath": "a.yaml"}],
    }
    spec = {
        "serviceAccountName": "vmem",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
            {"name": "config", "configMap": {"name": "config"}},
        ],
    }
    template = {"metadata": {"labels": {"part": "db"}}, "spec": spec}
    selector = {"matchLabels": {"part": "db"}}
    return _object("Deployment", "db", {"selector": selector, "template": template})


def _fitting() -> list[Object]:
    part = {"matchLabels": {"part": "db"}}
    return [
        _database(),
        _object("ServiceAccount", "vmem"),
        _object("PersistentVolumeClaim", "files"),
        _object("ConfigMap", "env", data={}),
        _object("ConfigMap", "config", data={"a.yaml": ""}),
        _object(
            "Service",
            "db",
            {"selector": {"part": "db"}, "ports": [{"name": "db", "port": 1, "targetPort": "db"}]},
        ),
        _object("NetworkPolicy", "deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        _object(
            "NetworkPolicy",
            "db",
            {
                "podSelector": part,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": part}], "ports": [{"port": "db"}]}],
                "egress": [{"to": [{"podSelector": part}], "ports": [{"port": 5432}]}],
            },
        ),
        _object("PodDisruptionBudget", "db", {"selector": part}),
        _object("PodMonitor", "db", {"selector": part, "podMetricsEndpoints": [{"port": "db"}]}),
        _object(
            "Ingress",
            "out",
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {"backend": {"service": {"name": "svc", "port": {"name": "serve"}}}}
                            ]
                        }
                    }
                ]
            },
        ),
    ]


def _at(objects: list[Object], path: str) -> tuple[Any, str]:
    """What holds the last part of KIND/NAME.key.0.key, and that part."""
    first, *way, last = path.split(".")
    kind, name = first.split("/")
    held: Any = next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))
    for key in way:
        held = held[int(key)] if isinstance(held, list) else held[key]
    return held, last


def _changed(path: str, value: Any) -> list[Object]:
    objects = copy.deepcopy(_fitting())
    held, last = _at(objects, path)
    if value is None:
        del held[last]
    else:
        held[int(last) if isinstance(held, list) else last] = value
    return objects


POD = "Deployment/db.spec.template.spec"
CONTAINER = f"{POD}.containers.0"
WIRES = [
    (f"{POD}.serviceAccountName", "other", "there is no ServiceAccount other"),
    (f"{CONTAINER}.envFrom.0.configMapRef.name", "other", "there is no ConfigMap other"),
    (f"{CONTAINER}.env.0.valueFrom.secretKeyRef.name", "x", "Secret x is neither made nor"),
    (f"{CONTAINER}.env.0.valueFrom.secretKeyRef.key", "x", "no key x of Secret database"),
    (f"{CONTAINER}.volumeMounts.1.subPath", "b.yaml", "ConfigMap config has no b.yaml"),
    (f"{CONTAINER}.volumeMounts.0.name", "x", "mounts x, which is no volume"),
    (f"{CONTAINER}.volumeMounts.0", {"name": "config"}, "nothing mounts the volume files"),
    (f"{CONTAINER}.readinessProbe.httpGet.port", "x", "readinessProbe asks the port x"),
    (
        f"{POD}.volumes.0.persistentVolumeClaim.claimName",
        "x",
        "there is no PersistentVolumeClaim x",
    ),
    ("Deployment/db.spec.selector.matchLabels.part", "x", "Deployment db: selector selects no pod"),
    ("Service/db.spec.selector.part", "x", "Service db: selector selects no pod"),
    ("Service/db.spec.ports.0.targetPort", "x", "Service db: no container of Deployment db has"),
    ("NetworkPolicy/db.spec.podSelector", {"matchLabels": {"part": "x"}}, "podSelector selects no"),
    ("NetworkPolicy/db.spec.ingress.0.ports.0.port", "x", "has the port x"),
    ("NetworkPolicy/db.spec.egress.0.ports.0.port", 5433, "has the port 5433"),
    (
        "NetworkPolicy/db.spec.egress.0.to.0.podSelector",
        {"matchExpressions": [{"key": "part", "operator": "NotIn", "values": ["db"]}]},
        "a peer selects no pod",
    ),
    ("PodDisruptionBudget/db.spec.selector", {"matchLabels": {"a": "b"}}, "selects no pod"),
    ("PodMonitor/db.spec.podMetricsEndpoints.0.port", "x", "has the port x"),
    (
        "Ingress/out.spec.rules.0.http.paths.0.backend.service.port.name",
        "x",
        "there is no Service svc with a port named x",
    ),
    ("ConfigMap/config.metadata.name", "env", "ConfigMap env is there twice"),
]
HARD = [
    (f"{POD}.securityContext.runAsNonRoot", None, "needs runAsNonRoot and a runAsUser"),
    (f"{POD}.securityContext.runAsUser", 0, "needs runAsNonRoot and a runAsUser"),
    (f"{POD}.securityContext.seccompProfile", None, "seccompProfile.type must be RuntimeDefault"),
    (f"{POD}.hostNetwork", True, "hostNetwork must not be set"),
    (f"{POD}.automountServiceAccountToken", None, "automountServiceAccountToken must be said"),
    (f"{POD}.enableServiceLinks", None, "enableServiceLinks must be false"),
    (f"{POD}.volumes.0", {"name": "files", "hostPath": {"path": "/"}}, "is a path of the node"),
    (f"{CONTAINER}.securityContext.allowPrivilegeEscalation", True, "must be false"),
    (f"{CONTAINER}.securityContext.readOnlyRootFilesystem", None, "must be true"),
    (f"{CONTAINER}.securityContext.capabilities", None, "capabilities.drop must be [ALL]"),
    (f"{CONTAINER}.resources.limits.memory", None, "resources.limits.memory is missing"),
    (f"{CONTAINER}.resources.requests.cpu", None, "resources.requests.cpu is missing"),
    (f"{CONTAINER}.image", "host:5000/db", "has no version"),
    (f"{CONTAINER}.image", "db:latest", "has no version"),
    (f"{CONTAINER}.livenessProbe", None, "livenessProbe is missing"),
    ("NetworkPolicy/deny.spec.policyTypes", ["Ingress"], "no policy that denies by default"),
]


def test_what_fits_has_no_faults() -> None:
    assert wiring_faults(_fitting(), GIVEN) == []
    assert hardening_faults(_fitting()) == []


def _check(faults: Callable[[list[Object]], list[str]], path: str, value: Any, said: str) -> None:
    found = faults(_changed(path, value))
    assert any(said in fault for fault in found), found


@pytest.mark.parametrize(("path", "value", "said"), WIRES, ids=[said for *_, said in WIRES])
def test_what_does_not_meet_is_said(path: str, value: Any, said: str) -> None:
    _check(lambda objects: wiring_faults(objects, GIVEN), path, value, said)


@pytest.mark.parametrize(("path", "value", "said"), HARD, ids=[f"{p} {s}" for p, _, s in HARD])
def test_what_takes_too_much_is_said(path: str, value: Any, said: str) -> None:
    _check(hardening_faults, path, value, said)


def test_a_job_needs_no_probes() -> None:
    objects = _changed(f"{CONTAINER}.livenessProbe", None)
    objects[0]["kind"] = "Job"
    assert hardening_faults(objects) == []
