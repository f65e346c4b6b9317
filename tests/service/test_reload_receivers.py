"""A receiver that a reload renames or takes away while a page waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.loopback import Answer, LoopbackServer, Request
from reload_cases import FIRST, LAST, Edited, recorded, rule

from tests.outbox import undelivered_count

CONFIG = """\
sources: [{{pages: ["http://replica-1:8000/metrics"]}}]
pools: [{{name: chat}}]
rules: [rules]
receivers: [{receivers}]
"""


class Hook(LoopbackServer):
    """Takes pages at ``/desk``; every other address of it is out of order."""

    def judge(self, request: Request) -> Answer:
        return Answer(204 if request.path == "/desk" else 503)

    def config(self, *names: str, more: str = "") -> str:
        each = (f"{{name: {name}, webhook: {{url: '{self.address}/{name}'}}}}" for name in names)
        return CONFIG.format(receivers=", ".join(each)) + more

    def taken(self) -> list[str]:
        key = "idempotency-key"
        return [r.headers[key].rpartition("-")[2] for r in self.requests if r.path == "/desk"]


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        yield server


@pytest.fixture
def edited(tmp_path: Path, shared_data: Path, hook: Hook) -> Iterator[Edited]:
    """A page waits for ``old``, which refuses it."""
    config = hook.config("old")
    one = Edited(
        tmp_path,
        recorded(shared_data),
        rule("Waiting", severity="page", keep_firing_for="5m"),
        config=config,
    )
    assert one.minutes(FIRST + 1)[0][2] == "firing"
    assert [attempt.result for attempt in one.service.deliver_once()] == ["retried"]
    yield one
    one.service.stop()
    one.store.close()


def reload(edited: Edited, config: str) -> None:
    edited.config.write_text(config)
    assert [line["event"] for line in edited.look()] == ["reloaded"]
    edited.minutes(FIRST + 2)
    edited.service.deliver_once()


def test_a_renamed_one_is_sent_the_page_and_the_resolve(edited: Edited, hook: Hook) -> None:
    reload(edited, hook.config("desk"))
    assert hook.taken() == ["firing"]
    edited.minutes(LAST + 8)
    edited.service.deliver_once()
    assert hook.taken() == ["firing", "resolved"]


def test_the_last_one_gone_is_visible(edited: Edited, hook: Hook) -> None:
    reload(edited, CONFIG.format(receivers=""))
    assert hook.taken() == []
    assert edited.gauge("unrouted_incidents") == 1
    assert undelivered_count(edited.store) == 1
    reload(edited, hook.config("desk"))
    edited.minutes(FIRST + 3)
    edited.service.deliver_once()
    assert hook.taken() == ["firing"]
