"""Pins of the store, as a tick takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from driftwatch.detect.fingerprints import Difference, differences, only
from driftwatch.detect.pins import Pin, Pins
from driftwatch.errors import StoreError
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.service.pin_documents import document_of, pin_of_json
from driftwatch.store.pins import KeptPin
from driftwatch.store.rows import to_json
from driftwatch.store.store import Store


def pins_from_store(store: Store) -> Pins:
    """The pins in force.

    Raises:
        StoreError: one of them cannot be read; the others are no excuse.
    """
    return Pins(tuple(pin_of_row(row) for row in store.pins()))


def pin_of_row(row: KeptPin) -> Pin:
    """A stored pin.

    Raises:
        StoreError: its document is no pin.
    """
    try:
        return pin_of_json(row.document)
    except (ValidationError, ValueError) as error:
        raise StoreError(
            f"pin {row.id} in the database cannot be read: {str(error).splitlines()[0]}",
            code="corrupt",
            help_text=f"pin {row.instance or row.pool} anew: driftwatch baseline propose",
        ) from error


def row_of(pin: Pin) -> KeptPin:
    """A pin as it is stored."""
    return KeptPin(
        pin.id,
        pin.scope,
        pin.instance,
        pin.engine,
        pin.pool,
        pin.accepted_at,
        pin.accepted_by,
        to_json(document_of(pin)),
    )


def of_others(
    pins: Sequence[Pin], now: Mapping[TargetKey, tuple[Target, Fingerprint]]
) -> list[tuple[Pin, str, tuple[Difference, ...]]]:
    """Pins that are of another identity than what runs: pin, whose, and what is not the same.

    Args:
        pins: those to be looked at.
        now: every target that is known, with its fingerprint.
    """
    found: list[tuple[Pin, str, tuple[Difference, ...]]] = []
    for pin in pins:
        for key, (target, print_) in now.items():
            named = (
                (pin.instance, pin.engine) == tuple(key)
                if pin.scope == "target"
                else pin.pool == target.pool
            )
            other = only(differences(pin.fingerprint, print_), "identity") if named else ()
            if other:
                found.append((pin, key.text, other))
                break
    return found
