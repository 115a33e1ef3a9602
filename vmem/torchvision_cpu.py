"""Makes PyPI's torchvision (a CUDA build) importable beside a CPU-only torch.

That wheel's compiled operators cannot load without CUDA, and importing torchvision then stops at
`operator torchvision::nms does not exist`, which stops transformers, open_clip and vLLM too. With
the two schemas declared that torchvision registers unconditionally, its Python parts (all of its
transforms) work; calling a compiled operator still raises torchvision's own error.

`python -m vmem.torchvision_cpu` looks whether the mismatch exists and, only then, installs this
module as a start-up hook of the environment, so that every spawned process has it.
"""

import importlib.abc
import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

HOOK = "vmem_torchvision_cpu"


class _DeclareBeforeTorchvision(importlib.abc.MetaPathFinder):
    """Finds nothing; when torchvision is first looked for, declares its missing operators."""

    library: Any = None  # torch drops the schemas when their library is collected

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        if torch.version.cuda is None and not hasattr(torch.ops.torchvision, "nms"):
            library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            type(self).library = library


def activate() -> None:
    """Put the finder first on this process's import path."""
    sys.meta_path.insert(0, _DeclareBeforeTorchvision())


def mismatch_exists() -> bool:
    """True where torch is a CPU build and torchvision's wheel is a CUDA build."""
    if importlib.util.find_spec("torchvision") is None:
        return False
    import torch

    vision_is_cpu = "+cpu" in importlib.metadata.version("torchvision")
    return torch.version.cuda is None and not vision_is_cpu


def install() -> str:
    """Write the hook into this environment where it is needed, and say what was done."""
    site = Path(sysconfig.get_paths()["purelib"])
    module, pth = site / f"{HOOK}.py", site / f"{HOOK}.pth"
    if not mismatch_exists():
        module.unlink(missing_ok=True)
        pth.unlink(missing_ok=True)
        return "torch and torchvision fit together: no hook needed"
    module.write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    pth.write_text(f"import {HOOK}; {HOOK}.activate()\n", encoding="utf-8")
    return f"CPU torch beside a CUDA torchvision: hook written to {pth.name}"


if __name__ == "__main__":
    sys.stdout.write(install() + "\n")
