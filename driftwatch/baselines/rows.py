"""Baselines of the store, as a tick takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driftwatch.baselines.documents import BaselineDocument, document_of, from_document
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.fingerprints import Difference, differences, only
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
        return from_document(BaselineDocument.model_validate_json(row.document))
    except ValueError as error:
        raise StoreError(
            f"pin {row.id} in the database cannot be read: {str(error).splitlines()[0]}",
            code="corrupt",
            help_text=f"pin {row.instance or row.pool} anew: driftwatch baseline propose",
        ) from error


def row_of(baseline: Baseline) -> BaselineRow:
    """A baseline as it is stored."""
    names = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")
    return BaselineRow(
        **{name: getattr(baseline, name) for name in names}, document=to_json(document_of(baseline))
    )


def replacing(before: Sequence[Baseline], new: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """Baselines in force once new ones take the places of those of the same target or pool."""

    def place(baseline: Baseline) -> tuple[str | None, ...]:
        return (
            baseline.scope,
            baseline.instance,
            baseline.engine,
            baseline.pool if baseline.scope == "pool" else None,
        )

    places = {place(baseline) for baseline in new}
    return (*(baseline for baseline in before if place(baseline) not in places), *new)


def of_others(
    baselines: Sequence[Baseline], now: Mapping[TargetKey, tuple[Target, Fingerprint]]
) -> list[tuple[Baseline, str, tuple[Difference, ...]]]:
    """Baselines of another identity than what runs: baseline, whose, and what differs.

    ``pins``: those to be looked at; ``now``: every target that is known, with its fingerprint.
    """
    others: list[tuple[Baseline, str, tuple[Difference, ...]]] = []
    for baseline in baselines:
        for key, (target, print_) in now.items():
            named = (
                (baseline.instance, baseline.engine) == tuple(key)
                if baseline.scope == "target"
                else baseline.pool == target.pool
            )
            other = only(differences(baseline.fingerprint, print_), "identity") if named else ()
            if other:
                others.append((baseline, key.text, other))
                break
    return others


def notes_on(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> dict[str, str]:
    """Id → what runs differently now: the baseline is not in force, or it is and says so."""
    notes: dict[str, str] = {}
    for key, target in targets.items():
        for baseline in baselines.naming(key.instance, key.engine, target.pool or ""):
            other = differences(baseline.fingerprint, ran.get(key, Fingerprint()))
            if not other or baseline.id in notes:
                continue
            texts = ", ".join(one.text for one in other)
            which = f" ({key.text})" if baseline.scope == "pool" else ""
            if only(other, "identity"):
                notes[baseline.id] = f"not in force, another server now{which}: {texts}"
            else:
                notes[baseline.id] = f"changed since{which}: {texts}"
    return notes
