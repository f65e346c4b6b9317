"""A reload: which files are read anew, what stays of incidents, and who is sent their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.loopback import Answer, LoopbackServer, Request
from reload_cases import CONFIG, FIRST, LAST, Edited, recorded, rule

from tests.outbox import undelivered_count

HOUR = timedelta(hours=1)
GOOD = "config_last_reload_successful"
AT = "config_last_reload_success_timestamp_seconds"
Start = Callable[..., Edited]


@pytest.fixture
def start(shared_data: Path, tmp_path: Path) -> Start:
    return lambda *rules, **config: Edited(tmp_path, recorded(shared_data), *rules, **config)


@pytest.fixture
def edited(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edited:
    monkeypatch.chdir(tmp_path)
    return start(rule("Waiting"))


def rules_of(edited: Edited) -> list[str]:
    return [rule.id for rule in edited.service._plan.rules]


def test_a_change_is_taken_at_a_hangup(edited: Edited) -> None:
    edited.write(rule("Waiting"), rule("Second"))
    edited.clock.advance(HOUR)
    assert edited.look() == [{"event": "reloaded", "rules": 2, "log_level": "info"}]
    assert rules_of(edited) == ["Waiting", "Second"]
    assert edited.gauge(AT) == edited.clock.now().timestamp()


def test_a_bad_set_is_refused_whole_and_every_problem_is_in_the_log(
    edited: Edited, golden: Callable[[str, str], None]
) -> None:
    at = edited.gauge(AT)
    assert edited.gauge(GOOD) == 1 and at == edited.clock.now().timestamp()
    edited.write(rule("Good"), file="good.yaml")
    edited.write(rule("Waiting", when="waiting_request >= 5"), rule("Other", receivers="[onkall]"))
    edited.config.write_text(CONFIG + "pols: []\n")
    edited.clock.advance(HOUR)
    log = edited.look()
    edited.config.write_text(CONFIG)
    log += edited.look()
    golden("reload/refused.txt", "".join(f"{_line(line)}\n" for line in log))
    assert rules_of(edited) == ["Waiting"]
    assert (edited.gauge(GOOD), edited.gauge(AT)) == (0, at)
    edited.write(rule("Waiting", when="waiting_requests >= 6"))
    assert edited.look()[-1]["event"] == "reloaded"
    assert rules_of(edited) == ["Good", "Waiting"]
    assert (edited.gauge(GOOD), edited.gauge(AT)) == (1, edited.clock.now().timestamp())


def _line(line: dict[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in line.items() if key != "log_level")


def test_that_nobody_gets_pages_is_in_the_log(edited: Edited) -> None:
    desk = "receivers: [{name: desk, stdout: {}, severities: [notice]}]"
    edited.config.write_text(CONFIG.replace(CONFIG.splitlines()[-1], desk))
    nobody = edited.look()[-1]
    assert (nobody["event"], nobody["reason"]) == ("nobody gets a page", "no receiver takes pages")


def test_what_needs_a_restart_is_named(edited: Edited) -> None:
    edited.config.write_text(CONFIG.replace("metrics", "metric") + "interval: 20s\n")
    log = edited.look()
    assert [line.get("key") for line in log] == [None, "sources", "interval"]
    edited.config.write_text(CONFIG)
    assert len(edited.look()) == 1


# --- what a reload keeps of incidents, and how those of changed rules end

SLOW, SLOWER = {"for": "3m"}, {"for": "5m"}
LONG = {"for": "30m"}
GONE = "the rule was removed"
HIGH = "waiting_requests >= 500"
Happened = list[tuple[int, str, str, str | None]]


# rules before and after, at FIRST + 1, until when → what happened since; what is open then
@pytest.mark.parametrize(
    ("before", "after", "until", "happened", "open_then"),
    [
        # minutes towards `for` count on
        (
            [rule("Waiting", **{"for": "4m"})],
            [rule("Waiting", **{"for": "4m"}), rule("Other", when="scrapes > 99")],
            FIRST + 3,
            [(FIRST + 3, "Waiting", "firing", None)],
            {"Waiting": "firing"},
        ),
        # a longer `for` keeps what fires and holds back what does not yet
        (
            [rule("Fires"), rule("Waits", **SLOW)],
            [rule("Fires", **LONG), rule("Waits", **SLOWER)],
            LAST + 1,
            [
                (FIRST + 4, "Waits", "firing", None),
                (LAST + 1, "Fires", "resolved", None),
                (LAST + 1, "Waits", "resolved", None),
            ],
            {},
        ),
        # who waited is dropped, nobody was told of it; who is new begins anew
        (
            [rule("Stays"), rule("Waits", **LONG), rule("Fires"), rule("Loud")],
            [
                rule("Stays"),
                rule("Loud", enabled="false", reason="too loud"),
                rule("New", **{"for": "2m"}),
            ],
            FIRST + 2,
            [
                (FIRST + 2, "Fires", "resolved", GONE),
                (FIRST + 2, "Loud", "resolved", "the rule was switched off: too loud"),
            ],
            {"Stays": "firing", "New": "pending"},
        ),
        # another condition ends an incident as that says
        (
            [rule("Waiting")],
            [rule("Waiting", when=HIGH, keep_firing_for="2m")],
            FIRST + 3,
            [(FIRST + 3, "Waiting", "resolved", None)],
            {},
        ),
    ],
)
def test_rules_that_change(
    start: Start,
    before: list[str],
    after: list[str],
    until: int,
    happened: Happened,
    open_then: dict[str, str],
) -> None:
    edited = start(*before)
    edited.minutes(FIRST + 1)
    edited.edit(*after)
    assert edited.minutes(until) == happened
    assert edited.open() == open_then
    for t in edited.outcome.transitions:
        if t.reason is not None:
            assert t.incident.page is not None and t.reason in t.incident.page.summary


def test_a_pool_with_another_name_ends_the_pools_incident_with_that_name(start: Start) -> None:
    edited = start(rule("Waiting"))
    edited.minutes(FIRST + 1)
    edited.config.write_text(edited.config.read_text().replace("chat", "rag"))
    edited.look()
    why = "the server is in pool rag now"
    assert edited.minutes(FIRST + 2) == [
        (FIRST + 2, "Waiting", "resolved", why),
        (FIRST + 2, "Waiting", "firing", None),
    ]
    (incident,) = edited.store.open_incidents().values()
    assert incident.pool == "rag"


# --- a receiver that a reload renames or takes away while a page waits for it

HOOKED = """\
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
        return HOOKED.format(receivers=", ".join(each)) + more

    def taken(self) -> list[str]:
        key = "idempotency-key"
        return [r.headers[key].rpartition("-")[2] for r in self.requests if r.path == "/desk"]


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        yield server


@pytest.fixture
def waiting(start: Start, hook: Hook) -> Iterator[Edited]:
    """A page waits for ``old``, which refuses it."""
    one = start(rule("Waiting", severity="page", keep_firing_for="5m"), config=hook.config("old"))
    assert one.minutes(FIRST + 1)[0][2] == "firing"
    assert [attempt.result for attempt in one.service.deliver_once()] == ["retried"]
    yield one
    one.service.stop()
    one.store.close()


def reload(edited: Edited, config: str) -> None:
    edited.config.write_text(config)
    assert edited.look()[0]["event"] == "reloaded"
    edited.minutes(FIRST + 2)
    edited.service.deliver_once()


def test_a_renamed_one_is_sent_the_page_and_the_resolve(waiting: Edited, hook: Hook) -> None:
    reload(waiting, hook.config("desk"))
    assert hook.taken() == ["firing"]
    waiting.minutes(LAST + 8)
    waiting.service.deliver_once()
    assert hook.taken() == ["firing", "resolved"]


def test_the_last_one_gone_is_visible(waiting: Edited, hook: Hook) -> None:
    reload(waiting, HOOKED.format(receivers=""))
    assert hook.taken() == []
    assert waiting.gauge("unrouted_incidents") == 1
    assert undelivered_count(waiting.store) == 1
    reload(waiting, hook.config("desk"))
    waiting.minutes(FIRST + 3)
    waiting.service.deliver_once()
    assert hook.taken() == ["firing"]
