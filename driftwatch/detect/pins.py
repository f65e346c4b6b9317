"""Pins: what a person (or an accepted proposal) said was good.

A pin is of one target or of a pool of identical configuration. It holds what was measured in its
window, the load model fitted there, and the fingerprints of what ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import polars as pl

from driftwatch.detect.reference import no_reference
from driftwatch.detect.speed.law import Law


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What ran: three groups, for a change of each means another thing (detection.md).

    Attributes:
        identity: model, GPU, TP/PP, dtype, quantisation; a change starts over.
        knobs: max_num_seqs, max_num_batched_tokens, KV blocks, other engine flags; the pin stays.
        release: vLLM version, image, driver; the pin stays.
    """

    identity: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned baseline.

    Attributes:
        id: short and unique.
        scope: what it is about.
        instance: of a target's pin, else None.
        engine: of a target's pin, else None.
        pool: the pool it belongs to.
        since: start of the window.
        until: its end.
        accepted_by: who; "provisional" where driftwatch took its own proposal.
        accepted_at: when.
        why: why this stretch is good, in words.
        fingerprint: of what ran.
        law: the load model; None where the window cannot carry one.
        arming: what is missing for a law; None where there is one.
        reference: one row of :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """

    id: str
    scope: Literal["target", "pool"]
    instance: str | None
    engine: str | None
    pool: str
    since: datetime
    until: datetime
    accepted_by: str
    accepted_at: datetime
    why: str
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    law: Law | None = None
    arming: str | None = None
    reference: pl.DataFrame = field(default_factory=no_reference)


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins in force: at most one per target and one per pool.

    Attributes:
        pins: in order of acceptance.
    """

    pins: Sequence[Pin] = ()

    def of_target(self, instance: str, engine: str, pool: str) -> Pin | None:
        """The target's own pin, else its pool's; None where neither is there."""
        own = pooled = None
        for pin in self.pins:
            if pin.scope == "target" and (pin.instance, pin.engine) == (instance, engine):
                own = pin
            elif pin.scope == "pool" and pin.pool == pool:
                pooled = pin
        return own or pooled
