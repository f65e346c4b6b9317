"""Advice and verifications through the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from store_cases import NOW

from driftwatch.errors import StoreError
from driftwatch.model import Advice, Reason, TargetKey
from driftwatch.recommend.advice import Answer
from driftwatch.store.history import TargetAdvice
from driftwatch.store.store import Store
from driftwatch.verify.verification import Change, Verification
from tests.outbox import write_advice

HOUR = timedelta(hours=1)
NONE = Advice(action="none", reason=Reason("leaf", "x"))
A, B = TargetKey("a:8000", "0"), TargetKey("b:8000", "0")


def answer(key: TargetKey = A, hours: float = 0, incident_id: str | None = None) -> TargetAdvice:
    at = NOW + hours * HOUR
    advice = Advice(action="no_action", reason=Reason("in_target", "é"))
    whole = Answer(at=at, advice=advice)
    return TargetAdvice(key, "rag", at, whole, incident_id)


def change(digit: str, key: TargetKey = A, hours: float = 0) -> Verification:
    at = NOW + hours * HOUR
    return Verification(
        id=digit * 12,
        instance=key.instance,
        engine=key.engine,
        pool="rag",
        change=Change("knobs", at, {}),
        opened_at=at,
    )


def _with(one: Verification, **fields: Any) -> Verification:
    return one.model_copy(update=fields)


def test_advice_by_time_target_and_incident(store: Store) -> None:
    late, early = answer(hours=2, incident_id="f" * 12), answer(hours=1)
    other = answer(B, hours=1)
    for one in (late, early, other):
        write_advice(store, one)
    assert [one for one in store.advices(NOW, NOW + 3 * HOUR) if one.key == A] == [early, late]
    at_once = sorted([early, other], key=lambda one: one.id)
    assert store.advices(NOW, NOW + 2 * HOUR) == at_once
    assert store.advices(NOW + 2 * HOUR, NOW + 3 * HOUR) == [late]
    write_advice(store, again := replace(late, answer=Answer(at=late.at, advice=NONE)))
    assert store.advices(NOW + 2 * HOUR, NOW + 3 * HOUR) == [again]


def test_a_verification_is_open_until_its_verdict(store: Store) -> None:
    first, second = change("1"), change("2", B, hours=1)
    store.write_verification(second)
    store.write_verification(first)
    assert store.open_verifications() == [first, second]
    closed = _with(first, verdict="PASS", closed_at=NOW + 2 * HOUR, incident_id="f" * 12)
    store.write_verification(closed)
    assert store.open_verifications() == [second]
    assert store.verifications(NOW + 2 * HOUR, NOW + 3 * HOUR) == [closed, second]
    assert store.verifications(NOW + 2.1 * HOUR, NOW + 3 * HOUR) == [second]
    assert store.verifications(NOW, NOW + HOUR) == [closed]


def test_a_tick_writes_them_or_nothing(store: Store, commit: Callable[..., None]) -> None:
    told = {"advices": [answer()], "verifications": [change("1")]}
    with pytest.raises(StoreError, match=r"(?i)check constraint"):
        commit(**{**told, "verifications": [_with(change("1"), verdict="odd")]})
    assert store.advices(NOW, NOW + HOUR) == []
    commit(**told)
    assert store.advices(NOW, NOW + HOUR) == [answer()]
    assert store.open_verifications() == [change("1")]
