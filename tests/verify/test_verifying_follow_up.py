"""Who had the page is told what came of it, after its end as well; a comparison that fails costs no
tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from verify_cases import DATA

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings import open_recording
from driftwatch.model import Reason, Recommendation
from driftwatch.notify.terminal import render
from driftwatch.receivers.sender import Message
from driftwatch.receivers.slack_blocks import blocks
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Advice, Question
from driftwatch.service import verifications as verifying
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store

SCHEMA = Path(__file__).parents[2] / "docs" / "page.schema.json"


class _Kept:
    """A receiver that takes everything."""

    def __init__(self) -> None:
        self.pages: list[Mapping[str, Any]] = []

    def send(self, message: Message) -> None:
        self.pages.append(message.payload)


def _advise(question: Question, **_: Any) -> Advice:
    change = Recommendation(
        "change",
        Reason("other", "best"),
        "max_num_seqs",
        8.0,
        "inferred",
        40.0,
        forecast={"ttft_seconds": 0.03, "today": {"ttft_seconds": 2.0}},
        basis="simulation",
    )
    return Advice(question.at, change)


def _lived(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """run_cap through the service; what its receiver got."""
    monkeypatch.setattr(advising, "advise", _advise)
    shipped = plan_of_rules(())
    rules = tuple(rule for rule in shipped.rules if rule.id == "BatchLimitBinding")
    source = open_recording(DATA / "run_cap")
    first, last = source.span()
    clock, receiver = ManualClock(first), _Kept()
    plan = replace(shipped, rules=rules)
    service = Service([source], plan, store, [Receiver("oncall", ("page",), receiver)], clock)
    while clock.now() < last:
        clock.advance(min(timedelta(minutes=4), last - clock.now()))
        service.tick_once()
        service.deliver_once()
        service.deliver_once()
    service.stop()
    return receiver.pages


def test_the_verdict_follows_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path / "driftwatch.db") as store:
        pages = _lived(store, monkeypatch)
        (kept,) = store.incidents()
    by_event = {page["event"]: page for page in pages}
    assert len(by_event) == len(pages)
    assert next(iter(by_event)) == "firing"
    verified = by_event["verified"]
    jsonschema.validate(verified, orjson.loads(SCHEMA.read_bytes()))
    assert verified["verification"]["verdict"] == "PASS"
    assert verified["incident"] == by_event["firing"]["incident"]
    line = verified["summary"]
    assert line.startswith("VERIFIED host:8000: PASS 08:4")
    assert "matched traffic: TTFT mean" in line
    assert len(line) <= 118
    told = render(verified)
    assert "max_num_seqs 8 (inferred) → at least 41" in told  # a peak, in ticks of 4 min
    assert "(forecast 0.03)" in told
    assert "driftwatch ack" not in str(blocks(verified))
    assert kept.state == "resolved"
    assert kept.page is not None
    assert kept.page["event"] == "resolved"
    assert kept.page["verification"]["verdict"] == "PASS"


@pytest.mark.slow
def test_a_comparison_that_fails_is_said_and_every_tick_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("no minute")

    monkeypatch.setattr(verifying, "verified", broken)
    with Store.open(tmp_path / "driftwatch.db") as store:
        pages = _lived(store, monkeypatch)
        assert store.open_verifications() == []
    assert [page["event"] for page in pages if page["event"] != "verified"] == [
        "firing",
        "resolved",
    ]
    (verified,) = (page for page in pages if page["event"] == "verified")
    assert verified["verification"]["verdict"] == "INCONCLUSIVE"
    said = "the comparison failed (ZeroDivisionError: no minute)"
    assert verified["verification"]["reason"] == said
