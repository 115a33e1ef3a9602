"""The pods that objects make, as their labels and ports say, KubeRay's own labels among them."""

from collections.abc import Mapping
from dataclasses import dataclass

from vmem.cluster.rules import Fields, cluster_spec, groups

KINDS = frozenset({"Deployment", "StatefulSet", "Job"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods that one object makes.

    Attributes:
        where: The object, and the group in it.
        namespace: Where they are.
        labels: What they carry, KubeRay's own labels among them.
        spec: Their spec.
        ends: They work and go: nobody probes them.
    """

    where: str
    namespace: str
    labels: Mapping[str, str]
    spec: Fields
    ends: bool = False

    @property
    def containers(self) -> list[Fields]:
        """Init containers first."""
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def port_names(self) -> set[str]:
        """Names of its containers' ports."""
        return {port["name"] for each in self.containers for port in each.get("ports") or ()}

    @property
    def port_numbers(self) -> set[int]:
        """Numbers of its containers' ports."""
        return {
            port["containerPort"] for each in self.containers for port in each.get("ports") or ()
        }


def pods_of(obj: Fields) -> list[Pods]:
    """The pods that an object makes, at most one entry a template."""
    where = f"{obj['kind']} {obj['metadata']['name']}"
    namespace = obj["metadata"].get("namespace", "")
    if obj["kind"] in KINDS:
        template = obj["spec"]["template"]
        return [
            Pods(
                where=where,
                namespace=namespace,
                labels=template["metadata"]["labels"],
                spec=template["spec"],
                ends=obj["kind"] == "Job",
            )
        ]
    cluster = cluster_spec(obj)
    made = []
    for name, group in groups(cluster) if cluster else ():
        labels = {
            **(group["template"].get("metadata") or {}).get("labels", {}),
            "ray.io/node-type": "head" if name == "head" else "worker",
            "ray.io/group": "headgroup" if name == "head" else name,
        }
        spec = group["template"]["spec"]
        made.append(Pods(where=f"{where}, {name}", namespace=namespace, labels=labels, spec=spec))
    if template := obj.get("spec", {}).get("submitterPodTemplate"):
        made.append(
            Pods(
                where=f"{where}, submitter",
                namespace=namespace,
                labels=template["metadata"]["labels"],
                spec=template["spec"],
                ends=True,
            )
        )
    return made


def selects(selector: Fields, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes a pod with these labels; an empty one takes every pod."""
    exact = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in exact.items()):
        return False
    for each in selector.get("matchExpressions") or ():
        held = labels.get(each["key"])
        fits = {
            "In": held in (each.get("values") or ()),
            "NotIn": held not in (each.get("values") or ()),
            "Exists": held is not None,
            "DoesNotExist": held is None,
        }
        if not fits[each["operator"]]:
            return False
    return True
