"""What every pod of ours keeps to: no root, no privilege, nothing unbounded, nothing unpinned."""

from collections.abc import Iterator, Sequence

from vmem.cluster.pods import Pods, pods_of
from vmem.cluster.rules import Fields

PROBED_BY_OPERATOR = frozenset({"ray-head", "ray-worker"})
"""Containers that KubeRay gives probes to."""
CONTAINER = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}


def hardening_faults(objects: Sequence[Fields]) -> list[str]:
    """Where pods take more than they need, a sentence each.

    Args:
        objects: All objects that stand together.
    """
    pods = [each for obj in objects for each in pods_of(obj)]
    return [
        *(fault for each in pods for fault in _pod(each)),
        *(fault for each in pods for fault in _containers(each)),
        *_denied(objects, pods),
    ]


def _pod(pods: Pods) -> Iterator[str]:
    context = pods.spec.get("securityContext") or {}
    if not context.get("runAsNonRoot") or context.get("runAsUser", 0) == 0:
        yield f"{pods.where}: securityContext needs runAsNonRoot and a runAsUser"
    if (context.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
        yield f"{pods.where}: securityContext.seccompProfile.type must be RuntimeDefault"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pods.spec.get(key):
            yield f"{pods.where}: {key} must not be set"
    if "automountServiceAccountToken" not in pods.spec:
        yield f"{pods.where}: automountServiceAccountToken must be said"
    if pods.spec.get("enableServiceLinks") is not False:
        yield f"{pods.where}: enableServiceLinks must be false: they set variables"
    for volume in pods.spec.get("volumes") or ():
        if "hostPath" in volume:
            yield f"{pods.where}: volume {volume['name']} is a path of the node"


def _containers(pods: Pods) -> Iterator[str]:
    for container in pods.containers:
        where = f"{pods.where}, container {container['name']}"
        context = container.get("securityContext") or {}
        for key, wanted in CONTAINER.items():
            if context.get(key) is not wanted:
                yield f"{where}: securityContext.{key} must be {str(wanted).lower()}"
        if (context.get("capabilities") or {}).get("drop") != ["ALL"]:
            yield f"{where}: securityContext.capabilities.drop must be [ALL]"
        resources = container.get("resources") or {}
        for side in ("requests", "limits"):
            for what in ("cpu", "memory"):
                if what not in (resources.get(side) or {}):
                    yield f"{where}: resources.{side}.{what} is missing"
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        if tag in {"", "latest"}:
            yield f"{where}: image {container['image']} has no version"
    if not pods.ends:
        yield from _probes(pods)


def _probes(pods: Pods) -> Iterator[str]:
    for container in pods.spec["containers"]:
        if container["name"] not in PROBED_BY_OPERATOR:
            for kind in ("readinessProbe", "livenessProbe"):
                if kind not in container:
                    yield f"{pods.where}, container {container['name']}: {kind} is missing"


def _denied(objects: Sequence[Fields], pods: Sequence[Pods]) -> Iterator[str]:
    """Namespaces with pods where what is not opened is not closed."""
    closed = {
        obj["metadata"].get("namespace", "")
        for obj in objects
        if obj["kind"] == "NetworkPolicy"
        and obj["spec"]["podSelector"] == {}
        and not obj["spec"].get("ingress")
        and not obj["spec"].get("egress")
        and set(obj["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    }
    for namespace in sorted({each.namespace for each in pods} - closed):
        yield f"namespace {namespace} has pods but no policy that denies by default"
