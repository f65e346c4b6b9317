"""Pins of the store, as a tick takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driftwatch.baselines.documents import PinDocument, document_of, pin_of
from driftwatch.detect.fingerprints import Difference, differences, only
from driftwatch.detect.pins import Pin, Pins
from driftwatch.documents import to_json
from driftwatch.errors import StoreError
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.store.baselines import BaselineRow
from driftwatch.store.store import Store


def pins_from_store(store: Store) -> Pins:
    """The pins in force.

    Raises StoreError: one of them cannot be read; the others are no excuse.
    """
    return Pins(tuple(pin_of_row(row) for row in store.baselines()))


def pin_of_row(row: BaselineRow) -> Pin:
    """A stored pin.

    Raises StoreError: its document is no pin.
    """
    try:
        return pin_of(PinDocument.model_validate_json(row.document))
    except ValueError as error:
        raise StoreError(
            f"pin {row.id} in the database cannot be read: {str(error).splitlines()[0]}",
            code="corrupt",
            help_text=f"pin {row.instance or row.pool} anew: driftwatch baseline propose",
        ) from error


def row_of(pin: Pin) -> BaselineRow:
    """A pin as it is stored."""
    names = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")
    return BaselineRow(
        **{name: getattr(pin, name) for name in names}, document=to_json(document_of(pin))
    )


def replacing(before: Sequence[Pin], new: Sequence[Pin]) -> tuple[Pin, ...]:
    """Pins in force once new ones take the places of those of the same target or pool."""

    def place(pin: Pin) -> tuple[str | None, ...]:
        return (pin.scope, pin.instance, pin.engine, pin.pool if pin.scope == "pool" else None)

    places = {place(pin) for pin in new}
    return (*(pin for pin in before if place(pin) not in places), *new)


def of_others(
    pins: Sequence[Pin], now: Mapping[TargetKey, tuple[Target, Fingerprint]]
) -> list[tuple[Pin, str, tuple[Difference, ...]]]:
    """Pins that are of another identity than what runs: pin, whose, and what is not the same.

    ``pins``: those to be looked at; ``now``: every target that is known, with its fingerprint.
    """
    others: list[tuple[Pin, str, tuple[Difference, ...]]] = []
    for pin in pins:
        for key, (target, print_) in now.items():
            named = (
                (pin.instance, pin.engine) == tuple(key)
                if pin.scope == "target"
                else pin.pool == target.pool
            )
            other = only(differences(pin.fingerprint, print_), "identity") if named else ()
            if other:
                others.append((pin, key.text, other))
                break
    return others


def notes_on(
    pins: Pins, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> dict[str, str]:
    """Pin id → what runs differently now: the pin is not in force, or it is and says so.

    ``pins``: those in force; ``targets``: every target that is known, with its pool; ``ran``:
    target → its fingerprint now.
    """
    notes: dict[str, str] = {}
    for key, target in targets.items():
        for pin in pins.naming(key.instance, key.engine, target.pool or ""):
            other = differences(pin.fingerprint, ran.get(key, Fingerprint()))
            if not other or pin.id in notes:
                continue
            texts = ", ".join(one.text for one in other)
            which = f" ({key.text})" if pin.scope == "pool" else ""
            if only(other, "identity"):
                notes[pin.id] = f"not in force, another server now{which}: {texts}"
            else:
                notes[pin.id] = f"changed since{which}: {texts}"
    return notes
