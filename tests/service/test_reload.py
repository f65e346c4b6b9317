"""Which files are taken anew, when, and what the log and the metrics have of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from reload_cases import CONFIG, Edited, recorded, rule

HOUR = timedelta(hours=1)
GOOD = "config_last_reload_successful"
AT = "config_last_reload_success_timestamp_seconds"


@pytest.fixture
def edited(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edited:
    monkeypatch.chdir(tmp_path)
    return Edited(tmp_path, recorded(shared_data), rule("Waiting"))


def rules_of(edited: Edited) -> list[str]:
    return [rule.id for rule in edited.service._plan.rules]


def test_a_change_is_taken_at_a_hangup(edited: Edited) -> None:
    edited.write(rule("Waiting"), rule("Second"))
    edited.clock.advance(HOUR)
    assert edited.look() == [
        {"event": "reloaded", "rules": 2, "added": "Second", "log_level": "info"}
    ]
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


def test_a_file_that_comes_or_goes_is_a_change(edited: Edited) -> None:
    more = edited.write(rule("More"), file="more.yaml")
    assert edited.look()[0]["added"] == "More"
    more.unlink()
    assert edited.look()[0]["removed"] == "More"
    edited.write(rule("Waiting")).unlink()
    assert edited.look()[-1]["event"] == "not reloaded: what is in force stays"
    edited.config.unlink()
    assert edited.look()[0]["where"] == "driftwatch.yaml"
    assert rules_of(edited) == ["Waiting"]


def test_what_needs_a_restart_is_named(edited: Edited) -> None:
    edited.config.write_text(CONFIG.replace("metrics", "metric") + "interval: 20s\n")
    log = edited.look()
    assert [line.get("key") for line in log] == [None, "sources", "interval"]
    edited.config.write_text(CONFIG)
    assert len(edited.look()) == 1
