"""Each of KubeRay's rules: what fits has no faults, and one change makes the fault it forbids."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from vmem.cluster.rules import QUEUE, operator_faults

Object = dict[str, Any]


def _group(**changes: Any) -> Object:
    container = {
        "name": "ray",
        "ports": [{"name": "serve"}, {"name": "metrics"}],
        "resources": {"limits": {"memory": "1Gi"}},
    }
    return {
        "rayStartParams": {"num-cpus": "0"},
        "template": {"spec": {"containers": [container]}},
        **changes,
    }


def _cluster() -> Object:
    return {
        "rayVersion": "2.60.0",
        "authOptions": {"mode": "token"},
        "headGroupSpec": _group(),
        "workerGroupSpecs": [_group(groupName="workers", minReplicas=1, maxReplicas=2)],
    }


def _service() -> Object:
    spec = {"excludeHeadPodFromServeSvc": True, "rayClusterConfig": _cluster()}
    return {"kind": "RayService", "metadata": {"name": "vmem"}, "spec": spec}


def _job() -> Object:
    spec = {
        "suspend": True,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "backoffLimit": 1,
        "rayClusterSpec": _cluster(),
    }
    metadata = {"name": "build", "labels": {QUEUE: "vmem"}}
    return {"kind": "RayJob", "metadata": metadata, "spec": spec}


def _plain() -> Object:
    return {"kind": "RayCluster", "metadata": {"name": "c"}, "spec": _cluster()}


def _set(path: str, value: Any) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        *way, last = path.split(".")
        for key in way:
            obj = obj[int(key)] if isinstance(obj, list) else obj.setdefault(key, {})
        obj[last] = value

    return change


def _drop(path: str) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        *way, last = path.split(".")
        for key in way:
            obj = obj[int(key)] if isinstance(obj, list) else obj[key]
        del obj[last]

    return change


SERVICE, JOB = "spec.rayClusterConfig", "spec.rayClusterSpec"
HEAD = "headGroupSpec.template.spec.containers.0"
INCREMENTAL = {"type": "NewClusterWithIncrementalUpgrade"}
BROKEN = [
    (_plain, _set("metadata.name", "c" * 54), "has 54 characters; KubeRay takes 53"),
    (_service, _set("metadata.name", "s" * 48), "has 48 characters; KubeRay takes 47"),
    (_job, _set("metadata.name", "j" * 48), "has 48 characters; KubeRay takes 47"),
    (_job, _set("metadata.name", "2nd"), "a letter first"),
    (_service, _set(f"{SERVICE}.rayVersion", "2.51.9"), "needs rayVersion 2.52 or later"),
    (_service, _drop(f"{SERVICE}.rayVersion"), "needs rayVersion 2.52 or later, not 'none'"),
    (_service, _drop(f"{SERVICE}.authOptions"), "authOptions.mode must be token"),
    (_job, _set("spec.shutdownAfterJobFinishes", False), "suspend needs shutdownAfterJobFinishes"),
    (_job, _set("spec.shutdownAfterJobFinishes", False), "ttlSecondsAfterFinished needs"),
    (_job, _drop(JOB), "needs rayClusterSpec or clusterSelector"),
    (_job, _set("spec.clusterSelector", {"ray.io/cluster": "c"}), "clusterSelector excludes"),
    (_job, _set("spec.submissionMode", "InteractiveMode"), "does not go with InteractiveMode"),
    (_job, _set("spec.activeDeadlineSeconds", 0), "activeDeadlineSeconds must be above 0"),
    (_job, _set("spec.suspend", False), "must be made with suspend: true"),
    (_job, _set(f"{JOB}.enableInTreeAutoscaling", True), "Kueue takes no job whose cluster"),
    (_job, _set(f"{JOB}.upgradeStrategy", {"type": "Recreate"}), "must not set upgradeStrategy"),
    (_service, _set("spec.upgradeStrategy", INCREMENTAL), "needs enableInTreeAutoscaling: true"),
    (_service, _set("spec.upgradeStrategy", INCREMENTAL), "clusterUpgradeOptions.gatewayClassName"),
    (
        _service,
        _set(f"{SERVICE}.headGroupSpec.headService", {"metadata": {"name": "head"}}),
        "headGroupSpec.headService must not have a name",
    ),
    (_service, _set(f"{SERVICE}.{HEAD}.ports", [{"name": "metrics"}]), "a port named serve"),
    (_service, _set(f"{SERVICE}.{HEAD}.ports", [{"name": "serve"}]), "a port named metrics"),
    (_service, _drop("spec.excludeHeadPodFromServeSvc"), "set excludeHeadPodFromServeSvc"),
    (
        _service,
        _set(f"{SERVICE}.autoscalerOptions", {"version": "v2"}),
        "autoscalerOptions means nothing without",
    ),
    (
        _service,
        _drop(f"{SERVICE}.workerGroupSpecs.0.maxReplicas"),
        "without autoscaling it needs minReplicas and maxReplicas",
    ),
    (
        _service,
        _set(f"{SERVICE}.workerGroupSpecs.0.minReplicas", 3),
        "minReplicas 3 and maxReplicas 2 do not fit",
    ),
    (
        _service,
        _set(f"{SERVICE}.{HEAD}.env", [{"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}]),
        "must not set RAY_REDIS_ADDRESS",
    ),
    (
        _service,
        _set(f"{SERVICE}.headGroupSpec.rayStartParams.redis-password", "x"),
        "rayStartParams.redis-password is for gcsFaultToleranceOptions",
    ),
    (_service, _set(f"{SERVICE}.gcsFaultToleranceOptions", {}), "needs redisAddress"),
    (_service, _drop(f"{SERVICE}.headGroupSpec.rayStartParams.num-cpus"), "num-cpus"),
    (_service, _drop(f"{SERVICE}.{HEAD}.resources"), "without a memory limit"),
    (
        _service,
        _set(f"{SERVICE}.workerGroupSpecs.0.rayStartParams.labels", "a=b"),
        "labels go to the group's own labels",
    ),
    (
        _service,
        _set(f"{SERVICE}.workerGroupSpecs.0.resources", {"CPU": "1"}),
        "resources are set twice",
    ),
]


@pytest.mark.parametrize("make", [_plain, _service, _job])
def test_what_fits_has_no_faults(make: Callable[[], Object]) -> None:
    assert operator_faults(make()) == []


@pytest.mark.parametrize(("make", "change", "said"), BROKEN, ids=[said for *_, said in BROKEN])
def test_what_the_operator_refuses_is_said(
    make: Callable[[], Object], change: Callable[[Object], None], said: str
) -> None:
    broken = copy.deepcopy(make())
    change(broken)
    faults = operator_faults(broken)
    assert any(said in fault for fault in faults), faults
    assert all(
        fault.startswith(f"{broken['kind']} {broken['metadata']['name']}") for fault in faults
    )


@pytest.mark.parametrize("group", ["headGroupSpec", "workerGroupSpecs.0"])
def test_the_second_autoscaler_wants_pods_that_do_not_restart(group: str) -> None:
    service = _service()
    _set(f"{SERVICE}.enableInTreeAutoscaling", True)(service)
    _set(f"{SERVICE}.autoscalerOptions", {"version": "v2"})(service)
    assert operator_faults(service) == []
    _set(f"{SERVICE}.{group}.template.spec.restartPolicy", "Always")(service)
    assert ["autoscaler v2 needs restartPolicy Never" in f for f in operator_faults(service)] == [
        True
    ]


def test_other_kinds_have_no_rules_here() -> None:
    assert operator_faults({"kind": "Service", "metadata": {"name": "x" * 60}}) == []
