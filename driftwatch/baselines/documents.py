"""Baselines of a store, and what runs differently now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftwatch.collect.fingerprint import Difference, differences
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.documents import to_json
from driftwatch.errors import StoreError
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.store.baselines import BaselineRow
from driftwatch.store.store import Store


def baselines_from_store(store: Store) -> Baselines:
    """The baselines in force.

    Raises StoreError: one of them cannot be read; the others are no excuse.
    """
    return Baselines(tuple(baseline_of_row(row) for row in store.baselines()))


def baseline_of_row(row: BaselineRow) -> Baseline:
    """A stored baseline.

    Raises StoreError: its document is no baseline.
    """
    try:
        return Baseline.model_validate_json(row.document)
    except ValueError as error:
        raise StoreError(
            f"pin {row.id} in the database cannot be read: {str(error).splitlines()[0]}",
            code="corrupt",
            help_text=f"pin {row.instance or row.pool} anew: driftwatch baseline propose",
        ) from error


def row_of(baseline: Baseline) -> BaselineRow:
    """A baseline as it is stored."""
    names = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")
    document = to_json(baseline.model_dump(mode="json"))
    return BaselineRow(**{name: getattr(baseline, name) for name in names}, document=document)


def changes_since(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> Iterator[tuple[Baseline, TargetKey, tuple[Difference, ...]]]:
    """Each baseline that names a target on which something else runs now, and what differs."""
    for key, target in targets.items():
        for one in baselines.naming(key.instance, key.engine, target.pool or ""):
            if other := differences(one.fingerprint, ran.get(key, Fingerprint())):
                yield one, key, other


def notes_on(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> dict[str, str]:
    """Id → what runs differently now: the baseline is not in force, or it is and says so."""
    notes: dict[str, str] = {}
    for one, key, other in changes_since(baselines, targets, ran):
        which = f" ({key.text})" if one.scope == "pool" else ""
        identity = any(part.group == "identity" for part in other)
        state = "not in force, another server now" if identity else "changed since"
        notes.setdefault(one.id, f"{state}{which}: {', '.join(part.text for part in other)}")
    return notes
