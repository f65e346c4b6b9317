"""Published traces by name; ``read_requests`` knows them by their columns as well.

Azure LLM inference traces 2023 (Patel et al., "Splitwise", ISCA 2024) and 2024 (Stojkovic et al.,
"DynamoLLM", HPCA 2025): CC-BY 4.0. Mooncake traces (Qin et al., FAST '25): Apache-2.0.
"""

from __future__ import annotations

from pathlib import Path

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.workload.formats import AZURE, MOONCAKE, Format
from driftwatch.simulate.workload.requests_file import Workload, read_workload


def azure(path: Path | str, *, limit: int | None = None) -> Requests:
    """Requests of an Azure trace; arrivals count from the first one's TIMESTAMP.

    Raises:
        WorkloadError: it cannot be read, or is another format.
    """
    return _of(path, AZURE, limit).requests


def mooncake(path: Path | str, *, limit: int | None = None) -> Workload:
    """Requests of a Mooncake trace, with what its prefix groups lose in ``notes``.

    Raises:
        WorkloadError: it cannot be read, or is another format.
    """
    return _of(path, MOONCAKE, limit)


def _of(path: Path | str, kind: Format, limit: int | None) -> Workload:
    found = read_workload(path, limit=limit)
    if found.source != kind.name:
        raise WorkloadError((f"{path}: {found.source}, not {kind.name}",))
    return found
