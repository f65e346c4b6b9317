"""What a target is that shows no series of vLLM, by the names of its series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driftwatch.collect.pages.foreign import is_known, without_vllm
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import matchers
from driftwatch.errors import SourceError

MOST = 20  # targets that are asked about at a time
# what Prometheus itself adds to a target
_ITS_OWN = ("scrape_", "ALERTS")


def what_they_are(asker: PrometheusAsker, instances: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Instance → why nothing of vLLM is there; up to :data:`MOST`, those that are answered.

    ``instances``: with ``up`` 1 and no ``vllm:`` series now.
    """
    for instance in sorted(instances)[:MOST]:
        try:
            names = asker.label_values("__name__", [f"{{{matchers({'instance': instance})}}}"])
        except SourceError:
            continue  # what the rows say without it stays true
        yield instance, _of(names)


def _of(names: Iterable[str]) -> str:
    """As :func:`without_vllm`, of names that other times and recording rules left behind."""
    own = [n for n in names if n != "up" and not n.startswith((*_ITS_OWN, "vllm:"))]
    exporters = [n for n in own if ":" not in n]  # level:metric:operations is a rule's name
    return without_vllm(own if is_known(own) else exporters)
