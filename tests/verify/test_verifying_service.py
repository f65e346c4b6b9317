"""The service verifies a real restart, over a restart of its own; pages and the command say it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from fakes.manual_clock import ManualClock
from verify_cases import DATA, verifications_of

from driftwatch.cli.main import cli
from driftwatch.collect.recordings import open_recording
from driftwatch.model import Advice, KnobMove, Reason
from driftwatch.notify.page import Page
from driftwatch.notify.terminal import render
from driftwatch.pipeline import verifications as verifying
from driftwatch.receivers.sender import Message
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Answer, Question
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store

TICK = timedelta(minutes=4)


class Kept:
    """A receiver that takes everything."""

    def __init__(self) -> None:
        self.pages: list[Any] = []

    def send(self, message: Message) -> None:
        self.pages.append(message.payload)


def advise(question: Question, **_: Any) -> Answer:
    change = Advice(
        action="change",
        reason=Reason("other", "best"),
        moves=(KnobMove("max_num_seqs", 8.0, 40.0, "inferred"),),
        forecast={"ttft_seconds": 0.03, "today": {"ttft_seconds": 2.0}},
        basis="simulation",
    )
    return Answer(at=question.at, advice=change)


@contextmanager
def lived(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, list[Any]]]:
    """run_cap through two services, one after the other; what their receiver got."""
    monkeypatch.setattr(advising, "advise", advise)
    shipped, receiver = plan_of_rules(()), Kept()
    rules = tuple(rule for rule in shipped.rules if rule.id == "BatchLimitBinding")
    source = open_recording(DATA / "run_cap")
    first, last = source.span()
    clock, receivers = ManualClock(first), [Receiver("oncall", ("page",), receiver)]
    with Store.open(path) as store:
        for until in (first + timedelta(minutes=21), last):
            service = Service([source], replace(shipped, rules=rules), store, receivers, clock)
            while clock.now() < until:
                clock.advance(min(TICK, until - clock.now()))
                service.tick_once()
                service.deliver_once()
                service.deliver_once()
            service.stop()
        yield store, receiver.pages


@pytest.fixture(scope="module")
def life(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Store, list[Any]]]:
    path = tmp_path_factory.mktemp("verify") / "driftwatch.db"
    with pytest.MonkeyPatch.context() as patch, lived(path, patch) as (store, pages):
        yield path, store, pages


def test_the_verdict_follows_the_page(life: tuple[Path, Store, list[Any]]) -> None:
    path, store, pages = life
    (kept,), (incident,) = verifications_of(store), store.incidents()
    assert (kept.verdict, kept.incident_id) == ("PASS", incident.id)
    assert kept.effects[0].forecast == 0.03
    by_event = {page.event: page for page in pages}
    assert len(by_event) == len(pages)
    verified = by_event["verified"]
    jsonschema.validate(verified.document(), Page.model_json_schema())
    assert verified.verification.verdict == "PASS"
    assert verified.incident == by_event["firing"].incident
    line = verified.summary
    assert line.startswith("VERIFIED host:8000: IT WORKED 08:4")
    assert "same traffic before and after: TTFT mean" in " ".join(
        one.text for one in verified.lines
    )
    text = render(verified)
    assert "max_num_seqs 8 (most that ran at once) → 4" in text and " or more" in text
    assert "(forecast 0.03)" in text
    assert incident.page is not None
    assert (incident.page.event, incident.page.verification.verdict) == ("resolved", "PASS")
    listed = CliRunner().invoke(cli, ["verify", "--db", str(path)]).stdout
    assert listed.split("\t")[1:4] == ["PASS", "2026-11-21T08:34:00Z", "host:8000"]


@pytest.mark.slow
def test_a_comparison_that_fails_costs_no_tick(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("no minute")

    monkeypatch.setattr(verifying, "verified", broken)
    with lived(tmp_path / "driftwatch.db", monkeypatch) as (store, pages):
        assert store.open_verifications() == []
    by_event = {page.event: page for page in pages}
    assert {"firing", "resolved"} < by_event.keys()
    verdict = by_event["verified"].verification
    assert verdict.verdict == "INCONCLUSIVE"
    assert verdict.reason == "the comparison failed (ZeroDivisionError: no minute)"
