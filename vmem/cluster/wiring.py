"""What Kubernetes takes and only then finds missing: names, labels and ports that others use.

A policy that selects nobody, a volume of no claim, a port of no container: each is valid alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmem.cluster.pods import Pods, pods_of, selects
from vmem.cluster.rules import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What objects may refer to though nobody here makes it.

    Attributes:
        secrets: Names of Secrets that are made by hand, each with its keys.
        services: Services that an operator makes, each with the names of its ports.
    """

    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    services: Mapping[str, frozenset[str]] = field(default_factory=dict)


def wiring_faults(objects: Sequence[Fields], given: Given) -> list[str]:
    """What objects refer to and nobody makes, a sentence each.

    Args:
        objects: All objects that stand together.
        given: What is made by hand or by operators.
    """
    pods = [each for obj in objects for each in pods_of(obj)]
    return [
        *_twice(objects),
        *(fault for each in pods for fault in _references(each, objects, given)),
        *(fault for each in pods for fault in _mounts(each)),
        *_selectors(objects, pods),
        *_ports(objects, pods, given),
    ]


def _twice(objects: Sequence[Fields]) -> Iterator[str]:
    seen = set()
    for obj in objects:
        meta = obj["metadata"]
        key = (obj["kind"], meta.get("namespace", ""), meta["name"])
        if key in seen:
            yield f"{obj['kind']} {meta['name']} is there twice"
        seen.add(key)


def _references(pods: Pods, objects: Sequence[Fields], given: Given) -> Iterator[str]:
    made = {
        (obj["kind"], obj["metadata"]["name"]): obj
        for obj in objects
        if obj["metadata"].get("namespace", "") == pods.namespace
    }
    account = pods.spec.get("serviceAccountName", "default")
    if ("ServiceAccount", account) not in made:
        yield f"{pods.where}: there is no ServiceAccount {account}"
    for name, keys, optional in _config_maps(pods.spec):
        held = made.get(("ConfigMap", name))
        if held is None and not optional:
            yield f"{pods.where}: there is no ConfigMap {name}"
        for key in sorted(keys - set(held["data"])) if held else ():
            yield f"{pods.where}: ConfigMap {name} has no {key}"
    for name, keys in _secrets(pods.spec):
        if name not in given.secrets:
            yield f"{pods.where}: Secret {name} is neither made nor documented"
        for key in sorted(keys - given.secrets.get(name, keys)):
            yield f"{pods.where}: no key {key} of Secret {name} is documented"
    for volume in pods.spec.get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and ("PersistentVolumeClaim", claim) not in made:
            yield f"{pods.where}: there is no PersistentVolumeClaim {claim}"


def _config_maps(spec: Fields) -> Iterator[tuple[str, set[str], bool]]:
    """The ConfigMaps a pod names: name, keys, and whether it does without."""
    mounts = [m for c in _containers(spec) for m in c.get("volumeMounts") or ()]
    for volume in spec.get("volumes") or ():
        if source := volume.get("configMap"):
            keys = {
                m["subPath"] for m in mounts if m["name"] == volume["name"] and m.get("subPath")
            }
            yield source["name"], keys, source.get("optional", False)
    for source in _sources(spec, "configMapRef"):
        yield source["name"], set(), source.get("optional", False)
    for source in _sources(spec, "configMapKeyRef"):
        yield source["name"], {source["key"]}, source.get("optional", False)


def _secrets(spec: Fields) -> Iterator[tuple[str, set[str]]]:
    for volume in spec.get("volumes") or ():
        if source := volume.get("secret"):
            yield source["secretName"], set()
    for source in _sources(spec, "secretRef"):
        yield source["name"], set()
    for source in _sources(spec, "secretKeyRef"):
        yield source["name"], {source["key"]}


def _sources(spec: Fields, kind: str) -> Iterator[Fields]:
    for container in _containers(spec):
        for each in container.get("envFrom") or ():
            if kind in each:
                yield each[kind]
        for each in container.get("env") or ():
            if kind in (each.get("valueFrom") or {}):
                yield each["valueFrom"][kind]


def _containers(spec: Fields) -> list[Fields]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _mounts(pods: Pods) -> Iterator[str]:
    volumes = {each["name"] for each in pods.spec.get("volumes") or ()}
    mounted = {m["name"] for c in pods.containers for m in c.get("volumeMounts") or ()}
    claimed = {"data"} if pods.where.startswith("StatefulSet") else set()
    for name in sorted(mounted - volumes - claimed):
        yield f"{pods.where}: a container mounts {name}, which is no volume of the pod"
    for name in sorted(volumes - mounted):
        yield f"{pods.where}: nothing mounts the volume {name}"


def _selectors(objects: Sequence[Fields], pods: Sequence[Pods]) -> Iterator[str]:
    """Policies, budgets, monitors and Services that select nobody."""
    for obj in objects:
        for what, selector in _selecting(obj):
            inside = [p for p in pods if p.namespace == obj["metadata"].get("namespace", "")]
            if inside and selector and not any(selects(selector, p.labels) for p in inside):
                yield f"{obj['kind']} {obj['metadata']['name']}: {what} selects no pod"


def _selecting(obj: Fields) -> Iterator[tuple[str, Fields]]:
    spec = obj.get("spec") or {}
    if obj["kind"] == "NetworkPolicy":
        yield "podSelector", spec["podSelector"]
        for rule in [*spec.get("ingress", ()), *spec.get("egress", ())]:
            for peer in [*rule.get("from", ()), *rule.get("to", ())]:
                if "podSelector" in peer and "namespaceSelector" not in peer:
                    yield "a peer", peer["podSelector"]
    if obj["kind"] == "PodDisruptionBudget":
        yield "selector", spec["selector"]
    if obj["kind"] == "Service" and spec.get("selector"):
        yield "selector", {"matchLabels": spec["selector"]}
    if obj["kind"] in {"StatefulSet", "Deployment"}:
        yield "selector", spec["selector"]


def _ports(objects: Sequence[Fields], pods: Sequence[Pods], given: Given) -> Iterator[str]:
    services = {
        obj["metadata"]["name"]: frozenset(p["name"] for p in obj["spec"]["ports"])
        for obj in objects
        if obj["kind"] == "Service"
    } | dict(given.services)
    for obj in objects:
        where = f"{obj['kind']} {obj['metadata']['name']}"
        inside = [p for p in pods if p.namespace == obj["metadata"].get("namespace", "")]
        if obj["kind"] == "Service":
            chosen = _chosen({"matchLabels": obj["spec"]["selector"]}, inside)
            targets = [p.get("targetPort", p["port"]) for p in obj["spec"]["ports"]]
            yield from _unknown(where, targets, chosen)
        if obj["kind"] == "NetworkPolicy":
            yield from _policy_ports(where, obj["spec"], inside)
        if obj["kind"] == "PodMonitor" and inside:
            wanted = [each["port"] for each in obj["spec"]["podMetricsEndpoints"]]
            yield from _unknown(where, wanted, _chosen(obj["spec"]["selector"], inside))
        for name, port in _backends(obj):
            if port not in services.get(name, frozenset()):
                yield f"{where}: there is no Service {name} with a port named {port}"
    for each in pods:
        yield from _probe_ports(each)


def _policy_ports(where: str, spec: Fields, pods: Sequence[Pods]) -> Iterator[str]:
    own = _chosen(spec["podSelector"], pods)
    for rule in spec.get("ingress") or ():
        yield from _unknown(where, [p["port"] for p in rule.get("ports") or ()], own)
    for rule in spec.get("egress") or ():
        wanted = [p["port"] for p in rule.get("ports") or ()]
        for peer in rule.get("to") or ():
            if "podSelector" in peer and "namespaceSelector" not in peer:
                yield from _unknown(where, wanted, _chosen(peer["podSelector"], pods))


def _unknown(where: str, ports: Iterable[int | str], chosen: Sequence[Pods]) -> Iterator[str]:
    if not chosen:
        return  # said already
    for port in ports:
        if not any(port in (p.port_names | p.port_numbers) for p in chosen):
            yield f"{where}: no container of {chosen[0].where} has the port {port}"


def _chosen(selector: Fields, pods: Sequence[Pods]) -> list[Pods]:
    return [each for each in pods if selects(selector, each.labels)]


def _backends(obj: Fields) -> Iterator[tuple[str, Any]]:
    if obj["kind"] != "Ingress":
        return
    for rule in obj["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            service = path["backend"]["service"]
            yield service["name"], service["port"]["name"]


def _probe_ports(pods: Pods) -> Iterator[str]:
    for container in pods.containers:
        names = {port["name"] for port in container.get("ports") or ()}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = ((container.get(kind) or {}).get("httpGet") or {}).get("port")
            if isinstance(port, str) and port not in names:
                yield f"{pods.where}: {kind} asks the port {port}, which the container has not"
