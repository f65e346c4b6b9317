"""Where a ``driftwatch baseline`` command takes minutes and baselines from, and their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from driftwatch.cli.history import History
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Material
    from driftwatch.detect.baselines import Baseline, Baselines
    from driftwatch.store import Store


def pins_in_force(history: History) -> Baselines:
    """The baselines of the database.

    Raises StoreError: it does not serve.
    """
    from driftwatch.baselines.documents import baselines_from_store

    with history.store() as store:
        return baselines_from_store(store)


def accept(store: Store, baselines: Iterable[Baseline], at: datetime) -> None:
    """Put baselines in force, and keep who accepted them, all or none."""
    from driftwatch.baselines.documents import row_of

    accepted = list(baselines)
    with store.one_transaction():
        store.add_baselines([row_of(one) for one in accepted])
        for one in accepted:
            store.note_action("accept baseline", one.accepted_by, at, subject=one.id)


def material_of(history: History) -> Material:
    """Minutes, targets and baselines of an API's past or of recordings, else of the database.

    Raises ConfigError: the configuration has problems; StoreError: the database does not serve;
    NoVerdict: there is no minute yet.
    """
    from driftwatch.baselines.candidates import material_of_replayed, material_of_store

    if history.is_stored:
        with replace(history, since=None, until=None).store() as store:
            material = material_of_store(store, history.plan)
        if material.until is None:
            raise NoVerdict(
                "the database holds no minute yet", help_text="driftwatch run -c driftwatch.yaml"
            )
        return material
    if history.recordings:
        history = replace(history, since=None, until=None)
    # a slow stretch is no baseline: where there is none yet, its own past says so
    with history.store() as store:
        material = material_of_replayed(store, history.plan)
    if material.until is None:
        raise NoVerdict("the recording holds no whole minute")
    return material


def pin_named(pins: Baselines, name: str) -> Baseline:
    """The baseline whose id begins so, or the one in force of a target or pool.

    Raises UsageError: none or several answer to it.
    """
    matching = [p for p in pins.every if p.id.startswith(name)]
    matching = matching or [p for p in pins.every if name in (subject_of(p), p.instance, p.pool)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{p.id} ({subject_of(p)})" for p in (matching or pins.every)[:8])
    raise UsageError(
        f"{name!r} names {len(matching)} baselines" if matching else f"no baseline {name!r}",
        help_text=f"one of: {listed}" if listed else "driftwatch baseline propose",
    )


def subject_of(pin: Baseline) -> str:
    """``host:8000``, or the pool's name."""
    from driftwatch.model import TargetKey

    return pin.pool if pin.instance is None else TargetKey(pin.instance, pin.engine or "0").text
