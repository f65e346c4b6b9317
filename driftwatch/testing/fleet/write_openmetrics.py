"""Writes what Prometheus would hold, for ``promtool tsdb create-blocks-from openmetrics``.

Each sample of a page gets ``instance`` and ``job`` and the time of its scrape; ``up`` says which
scrapes failed. Prometheus' staleness markers cannot be written in OpenMetrics: a series that ends
is looked back to for five minutes more than in a Prometheus that scraped it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from driftwatch.testing.fleet.metric_history import Answer
from driftwatch.testing.fleet.naming import DCGM_JOB, JOB, exporter_of, instance_of
from driftwatch.testing.fleet.scenario import Scenario
from driftwatch.testing.fleet.server_run import Chunk

FILE = "fleet.om"


def write_openmetrics(scenario: Scenario, chunks: Iterable[Chunk], folder: Path) -> Path:
    """``fleet.om``, series of all servers.

    Args:
        scenario: what they are of.
        chunks: with the texts of the pages.
        folder: it must exist.

    Returns:
        the file; ``promtool tsdb create-blocks-from openmetrics FILE DATA`` loads it.
    """
    path = folder / FILE
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for chunk in chunks:
            for answers, instance, job in (
                (chunk.answers, instance_of(scenario, chunk.number), JOB),
                (chunk.gpu_answers, exporter_of(scenario, chunk.number), DCGM_JOB),
            ):
                for answer in answers:
                    file.writelines(_samples(answer, instance, job))
        file.write("# EOF\n")
    return path


def _samples(answer: Answer, instance: str, job: str) -> Iterator[str]:
    """The lines of one scrape."""
    at = f"{answer.time.timestamp():.3f}"
    labels = f'instance="{instance}",job="{job}"'
    yield f"up{{{labels}}} {int(answer.status == 200)} {at}\n"
    if answer.status != 200:
        return
    for line in answer.body.splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        name, brace, rest = series.partition("{")
        inside = f"{rest[:-1].rstrip(',')}," if brace and rest != "}" else ""
        yield f"{name}{{{inside}{labels}}} {value} {at}\n"
