"""What KubeRay 1.7 refuses beyond its schema, and what vmem asks of a Ray cluster on top of it.

An object that breaks one of these passes `kubectl apply` and then never comes up.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Fields = Mapping[str, Any]

NAME_LENGTHS = {"RayCluster": 53, "RayService": 47, "RayJob": 47}
TOKEN_RAY = (2, 52)
QUEUE = "kueue.x-k8s.io/queue-name"
BY_OPERATOR = {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"}
"""Variables of a head that `gcsFaultToleranceOptions` stands for."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def operator_faults(obj: Fields) -> list[str]:
    """What is wrong with a RayCluster, RayJob or RayService, a sentence each.

    Args:
        obj: The object, as its YAML reads; other kinds have no faults.
    """
    if obj["kind"] not in NAME_LENGTHS:
        return []
    where = f"{obj['kind']} {obj['metadata']['name']}"
    spec, cluster = obj["spec"], cluster_spec(obj)
    found = [*_name(obj)]
    if obj["kind"] == "RayJob":
        found += [fault for rule in _OF_JOBS for fault in rule(obj)]
    if obj["kind"] == "RayService":
        found += [fault for rule in _OF_SERVICES for fault in rule(spec)]
    if cluster is not None:
        found += [fault for rule in _OF_CLUSTERS for fault in rule(cluster)]
        found += _upgrade_of_made_cluster(obj["kind"], cluster)
    return [f"{where}: {fault}" for fault in found]


def cluster_spec(obj: Fields) -> Fields | None:
    """The Ray cluster inside an object; None where it has none."""
    keys = {"RayCluster": None, "RayService": "rayClusterConfig", "RayJob": "rayClusterSpec"}
    if obj["kind"] not in keys:
        return None
    key = keys[obj["kind"]]
    found: Fields | None = obj["spec"] if key is None else obj["spec"].get(key)
    return found


def groups(cluster: Fields) -> list[tuple[str, Fields]]:
    """The head group and the worker groups of a cluster, by name."""
    workers = cluster.get("workerGroupSpecs") or []
    return [("head", cluster["headGroupSpec"]), *((each["groupName"], each) for each in workers)]


def ray_container(group: Fields) -> Fields:
    """The container that Ray runs in: the first."""
    container: Fields = group["template"]["spec"]["containers"][0]
    return container


def _name(obj: Fields) -> Iterator[str]:
    name, most = obj["metadata"]["name"], NAME_LENGTHS[obj["kind"]]
    if len(name) > most:
        yield f"its name has {len(name)} characters; KubeRay takes {most}"
    if not _LABEL.fullmatch(name):
        yield "its name must be small letters, digits and -, a letter first"


def _job_ends(job: Fields) -> Iterator[str]:
    spec = job["spec"]
    if not spec.get("shutdownAfterJobFinishes"):
        for key in ("suspend", "ttlSecondsAfterFinished"):
            if spec.get(key):
                yield f"{key} needs shutdownAfterJobFinishes: true"


def _job_has_a_cluster(job: Fields) -> Iterator[str]:
    spec = job["spec"]
    selector = spec.get("clusterSelector")
    if not selector and not spec.get("rayClusterSpec"):
        yield "it needs rayClusterSpec or clusterSelector"
    if selector and (spec.get("suspend") or spec.get("backoffLimit")):
        yield "clusterSelector excludes suspend and backoffLimit"


def _job_mode(job: Fields) -> Iterator[str]:
    spec = job["spec"]
    mode = spec.get("submissionMode", "K8sJobMode")
    if mode == "InteractiveMode" and spec.get("backoffLimit"):
        yield "backoffLimit does not go with InteractiveMode"
    if mode == "SidecarMode" and {"submitterPodTemplate", "submitterConfig"} & spec.keys():
        yield "SidecarMode has no submitter of its own: leave submitterPodTemplate and -Config out"


def _job_in_a_queue(job: Fields) -> Iterator[str]:
    if QUEUE not in (job["metadata"].get("labels") or {}):
        return
    if not job["spec"].get("suspend"):
        yield f"a job with the label {QUEUE} must be made with suspend: true"
    if (job["spec"].get("rayClusterSpec") or {}).get("enableInTreeAutoscaling"):
        yield "Kueue takes no job whose cluster scales itself: drop enableInTreeAutoscaling"


def _job_times(job: Fields) -> Iterator[str]:
    for key in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if job["spec"].get(key, 1) <= 0:
            yield f"{key} must be above 0"


def _service_names_no_head(spec: Fields) -> Iterator[str]:
    service = spec["rayClusterConfig"]["headGroupSpec"].get("headService") or {}
    if (service.get("metadata") or {}).get("name"):
        yield "headGroupSpec.headService must not have a name: each cluster's head gets its own"


def _service_upgrade(spec: Fields) -> Iterator[str]:
    strategy = spec.get("upgradeStrategy") or {}
    if strategy.get("type") != "NewClusterWithIncrementalUpgrade":
        return
    options = strategy.get("clusterUpgradeOptions") or {}
    if not spec["rayClusterConfig"].get("enableInTreeAutoscaling"):
        yield "NewClusterWithIncrementalUpgrade needs enableInTreeAutoscaling: true"
    if not options.get("gatewayClassName"):
        yield "NewClusterWithIncrementalUpgrade needs clusterUpgradeOptions.gatewayClassName"
    if options.get("stepSizePercent", 100) > options.get("maxSurgePercent", 100):
        yield "clusterUpgradeOptions.stepSizePercent is above maxSurgePercent"


def _service_ports(spec: Fields) -> Iterator[str]:
    head = ray_container(spec["rayClusterConfig"]["headGroupSpec"])
    if not spec.get("serveService") and "serve" not in _ports(head):
        yield "the head's container needs a port named serve, or KubeRay makes no Service"
    if not spec.get("excludeHeadPodFromServeSvc"):
        yield "set excludeHeadPodFromServeSvc: true: the head coordinates and serves nobody"


def _token(cluster: Fields) -> Iterator[str]:
    if (cluster.get("authOptions") or {}).get("mode") != "token":
        yield "authOptions.mode must be token: else whoever reaches the head runs what they like"
        return
    version = str(cluster.get("rayVersion", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if len(numbers) < len(TOKEN_RAY) or numbers < TOKEN_RAY:
        yield f"authOptions.mode token needs rayVersion 2.52 or later, not {version or 'none'!r}"


def _autoscaler(cluster: Fields) -> Iterator[str]:
    options = cluster.get("autoscalerOptions") or {}
    if not cluster.get("enableInTreeAutoscaling"):
        if options:
            yield "autoscalerOptions means nothing without enableInTreeAutoscaling: true"
        return
    if str(options.get("version")) != "v2":
        return
    for name, group in groups(cluster):
        if group["template"]["spec"].get("restartPolicy", "Never") != "Never":
            yield f"group {name}: autoscaler v2 needs restartPolicy Never, or none"


def _numbers(cluster: Fields) -> Iterator[str]:
    scales = cluster.get("enableInTreeAutoscaling")
    for name, group in groups(cluster)[1:]:
        least, most = group.get("minReplicas"), group.get("maxReplicas")
        if not scales and (least is None or most is None):
            yield f"group {name}: without autoscaling it needs minReplicas and maxReplicas"
        if least is not None and most is not None and not 0 <= least <= most:
            yield f"group {name}: minReplicas {least} and maxReplicas {most} do not fit"


def _fault_tolerance(cluster: Fields) -> Iterator[str]:
    head = cluster["headGroupSpec"]
    names = {each["name"] for each in ray_container(head).get("env") or []}
    for name in sorted(names & BY_OPERATOR):
        yield f"the head must not set {name}: use gcsFaultToleranceOptions"
    for name in ("redis-password", "redis-username"):
        if name in (head.get("rayStartParams") or {}):
            yield f"rayStartParams.{name} is for gcsFaultToleranceOptions to set"
    options = cluster.get("gcsFaultToleranceOptions")
    if options is not None and not options.get("redisAddress"):
        yield "gcsFaultToleranceOptions needs redisAddress"


def _head(cluster: Fields) -> Iterator[str]:
    if (cluster["headGroupSpec"].get("rayStartParams") or {}).get("num-cpus") != "0":
        yield 'the head needs rayStartParams.num-cpus: "0": work there would starve the control'
    if "metrics" not in _ports(ray_container(cluster["headGroupSpec"])):
        yield "the head's container needs a port named metrics"


def _workers(cluster: Fields) -> Iterator[str]:
    for name, group in groups(cluster):
        params = group.get("rayStartParams") or {}
        if "labels" in params:
            yield f"group {name}: labels go to the group's own labels, not into rayStartParams"
        if group.get("resources") and {"num-cpus", "num-gpus", "memory", "resources"} & {*params}:
            yield f"group {name}: resources are set twice, in rayStartParams and in resources"
        limits = (ray_container(group).get("resources") or {}).get("limits") or {}
        if "memory" not in limits:
            yield f"group {name}: without a memory limit Ray takes the node's whole memory"
        if str(params.get("metrics-export-port", "8080")) != "8080":
            yield f"group {name}: metrics-export-port must be 8080, where the port metrics is"


def _upgrade_of_made_cluster(kind: str, cluster: Fields) -> Iterator[str]:
    if kind != "RayCluster" and (cluster.get("upgradeStrategy") or {}).get("type"):
        yield "the cluster inside must not set upgradeStrategy: the object around it does"


def _ports(container: Fields) -> set[str]:
    return {each.get("name", "") for each in container.get("ports") or []}


Rule = Callable[[Fields], Iterable[str]]
_OF_JOBS: tuple[Rule, ...] = (
    _job_ends,
    _job_has_a_cluster,
    _job_mode,
    _job_in_a_queue,
    _job_times,
)
_OF_SERVICES: tuple[Rule, ...] = (_service_names_no_head, _service_upgrade, _service_ports)
_OF_CLUSTERS: tuple[Rule, ...] = (
    _token,
    _autoscaler,
    _numbers,
    _fault_tolerance,
    _head,
    _workers,
)
