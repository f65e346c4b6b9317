"""A server that runs with another setting: told once to the receivers that want changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from verify_cases import DATA

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings import open_recording
from driftwatch.model import TargetKey
from driftwatch.notify.change import ServerChange, change_documents, server_change
from driftwatch.receivers.pagerduty import PagerdutySender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store
from driftwatch.verify.verification import Change, Verification

AT = datetime(2026, 11, 18, 3, 38, tzinfo=UTC)


@pytest.mark.slow
def test_a_change_of_a_recorded_server_reaches_pagerduty_once(tmp_path: Path) -> None:
    """run_cap: somebody restarts the server with a larger cap; a restart of ours in between."""
    source = open_recording(DATA / "run_cap")
    first, last = source.span()
    clock, plan = ManualClock(first), replace(plan_of_rules(()), rules=())
    with PagerdutyServer() as server:
        to = PagerdutySender("pd", server.address, ROUTING_KEY)
        other = PagerdutySender("other", server.address, ROUTING_KEY)
        receivers = [
            Receiver("pd", ("page",), to, changes=True, form="pagerduty"),
            Receiver("other", ("page",), other, form="pagerduty"),
        ]
        for end in (first + (last - first) / 2, last):
            with Store.open(tmp_path / "driftwatch.db") as store:
                service = Service([source], plan, store, receivers, clock)
                while clock.now() < end:
                    clock.advance(min(timedelta(minutes=7), end - clock.now()))
                    service.tick_once()
                    service.deliver_once()
                service.stop()
        assert server.alerts == []
        (event,) = server.changes
    payload = event["payload"]
    assert payload["summary"].startswith(
        "tiny-llama host:8000: max_num_seqs 8 (inferred) -> at least "
    )
    assert payload["custom_details"]["kind"] == "knobs"
    assert first < datetime.fromisoformat(payload["timestamp"]) < last


def change(number: int, what: dict[str, tuple[str, str]]) -> ServerChange:
    key = TargetKey(f"rag-{number}:8000", "0")
    return ServerChange(key, "rag-8b", Change("knobs", AT + timedelta(minutes=number), what))


BUDGET = {"max_num_batched_tokens": ("512", "2048")}


def test_servers_that_changed_alike_are_one_change() -> None:
    changes = [change(number, BUDGET) for number in (2, 0, 1)]
    other = change(3, {"vllm": ("0.31.0", "0.32.0")})
    documents = change_documents([*changes, other], "https://ops.example/drift/")
    assert [one["links"]["driftwatch"] for one in documents.values()] == [
        "https://ops.example/drift/pools/rag-8b",
        "https://ops.example/drift/targets/rag-3:8000",
    ]
    assert [one["summary"] for one in documents.values()] == [
        "rag-8b, 3 servers: max_num_batched_tokens 512 → 2048",
        "rag-8b rag-3:8000: vllm 0.31.0 → 0.32.0",
    ]
    pool, _ = documents.values()
    assert pool["targets"] == ["rag-0:8000", "rag-1:8000", "rag-2:8000"]
    assert pool["at"] == "2026-11-18T03:38:00Z"
    # whatever the order, and in another process: the same id, so that the outbox has it once
    assert change_documents([other, *changes[::-1]]).keys() == documents.keys()


def verification(what: dict[str, tuple[str, str]], at: datetime = AT) -> Verification:
    return Verification("v", "rag-0:8000", "0", "rag-8b", Change("knobs", at, what), at)


def test_of_a_change_that_grows_only_what_is_new_is_told() -> None:
    before = Change("knobs", AT, BUDGET)
    assert server_change(verification(BUDGET), before) is None
    grown = {"max_num_batched_tokens": ("512", "at least 4096"), "max_num_seqs": ("8", "64")}
    new = server_change(verification(grown), before)
    assert new is not None and new.change.what == {"max_num_seqs": ("8", "64")}
    later = server_change(verification(BUDGET, AT + timedelta(hours=1)), before)
    assert later is not None and later.change.what == BUDGET
