"""Series of DCGM in a Prometheus API: which GPU each is of, worked out once per set of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from driftwatch.collect.dcgm.names import READ_NAMES, Roster, gpu_of
from driftwatch.collect.prometheus.roster import Labels

NONE = -1  # a series that is of no GPU
_NAMES = {name.encode(): index for name, index in READ_NAMES.items()}
_NAME = b'"__name__":"'

Exporter = tuple[str, str]  # job and instance


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """The last series of one query: whom each is of, and its name.

    ``order`` is each one's rank among the sorted labels, where several tell of the same: two jobs
    that scrape one exporter, the replicas of a Prometheus, a pod that holds two shares of a GPU.
    """

    heads: Sequence[bytes]
    gpu: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64] | None


@dataclass(slots=True)
class Fleet:
    """Every GPU that the series told of, worked out once per set of labels."""

    roster: Roster = field(default_factory=Roster)
    numbers: dict[bytes, int] = field(default_factory=dict)  # labels without name → number
    of: dict[Exporter, list[bytes]] = field(default_factory=dict)
    unusable: dict[bytes, str] = field(default_factory=dict)
    queries: dict[str, KnownSeries] = field(default_factory=dict)

    def add(self, bare: bytes, labels: Labels, own: frozenset[str]) -> None:
        """A set of labels that was not seen before."""
        exporter = labels.get("instance") or labels.get("Hostname") or ""
        who = gpu_of(labels, exporter, own)
        self.of.setdefault(exporter_of(labels), []).append(bare)
        if isinstance(who, str):
            self.unusable[bare] = who
            self.numbers[bare] = NONE
        else:
            self.numbers[bare] = self.roster.number(who)

    def forget(self, exporter: Exporter) -> list[bytes]:
        """Sets of labels of one exporter, to be worked out again."""
        bares = self.of.pop(exporter, [])
        for bare in bares:
            del self.numbers[bare]
            self.unusable.pop(bare, None)
        return bares


def known_series(
    heads: Sequence[bytes], apart: Sequence[tuple[bytes, bytes]], numbers: Mapping[bytes, int]
) -> KnownSeries:
    """Whom the series of one answer are of."""
    gpu = np.array([numbers[bare] for _, bare in apart], dtype=np.int64)
    name = np.array([_NAMES.get(one, NONE) for one, _ in apart], dtype=np.int64)
    order = None
    if np.unique(gpu * len(_NAMES) + name).size < len(heads):
        order = np.argsort(np.argsort(np.array(heads, dtype=object)))
    return KnownSeries(heads, gpu, name, order)


def name_apart(head: bytes) -> tuple[bytes, bytes]:
    """The name of a series, and its labels as JSON without the name.

    The fields of a GPU have the same labels, so that one parse does for all of them.
    """
    found = head.find(_NAME)
    if found < 0:
        return b"", head
    start = found + len(_NAME)
    end = head.find(b'"', start)
    return head[start:end], head[:start] + head[end:]


def exporter_of(labels: Labels) -> Exporter:
    """The scrape that a series is of."""
    return labels.get("job", ""), labels.get("instance", "")
