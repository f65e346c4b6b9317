"""Templates of a rule's page, filled from the page's JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from driftwatch.evidence import BY_NAME
from driftwatch.notify.columns import evidence_value
from driftwatch.notify.page import Page
from driftwatch.notify.phrases.limits import (
    full,
    given_up,
    harm,
    in_target,
    limit,
    missed,
    nothing_to_do,
    present,
    queueing,
    target_kept,
)
from driftwatch.notify.phrases.speed import (
    drift_14d,
    gpu_names,
    gpus,
    gpus_of_server,
    least_drift_14d,
    meaning,
    missing_count,
    missing_metrics,
    missing_reason,
    peers,
    slower,
    slower_than_peers,
    step_time,
)
from driftwatch.notify.phrases.traffic import (
    baseline,
    began,
    began_14d,
    lengths,
    means,
    moved,
    unchanged,
)


def fill(page: Page, templates: Iterable[str]) -> Iterator[str]:
    """The templates whose names all have a value on this page, filled, in their order."""
    for template in templates:
        texts = {name: _text(page, name) for name in re.findall(r"\{(\w+)\}", template)}
        if None not in texts.values():
            yield re.sub(r"\{(\w+)\}", lambda m, t=texts: str(t[m[1]]), template)  # type: ignore[misc]


def _text(page: Page, name: str) -> str | None:
    if name in PHRASES:
        return PHRASES[name](page)
    amount = page.value(name) if name in BY_NAME else None
    return None if amount is None else evidence_value(name, amount)


PHRASES: Mapping[str, Callable[[Page], str | None]] = {
    function.__name__: function
    for function in (
        began, began_14d, harm, missed, queueing, limit, full, present, given_up, moved, means,
        lengths, slower, slower_than_peers, step_time, peers, drift_14d, least_drift_14d,
        missing_count, missing_metrics, missing_reason, gpus, gpu_names, gpus_of_server,
        meaning, target_kept, baseline, nothing_to_do, in_target, unchanged,
    )
}  # fmt: skip
