import os
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3].parent / "shared"


@pytest.fixture
def shared_data() -> Path:
    """The folder of the benchmarks, beside the repository or where VMEM_TEST_DATA says."""
    folder = Path(os.environ.get("VMEM_TEST_DATA", SHARED / "data"))
    if not folder.is_dir():
        pytest.skip(f"the benchmarks are not in {folder}; set VMEM_TEST_DATA to their folder")
    return folder
