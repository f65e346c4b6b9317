"""Which files are taken anew, when, and what the log and the metrics have of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from reload_cases import CONFIG, Edited, recorded, rule
from structlog.testing import capture_logs

HOUR = timedelta(hours=1)
GOOD = "config_last_reload_successful"
AT = "config_last_reload_success_timestamp_seconds"


@pytest.fixture
def edited(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edited:
    monkeypatch.chdir(tmp_path)
    return Edited(tmp_path, recorded(shared_data), rule("Waiting"))


def rules_of(edited: Edited) -> list[str]:
    return [rule.id for rule in edited.service._plan.rules]


def test_a_change_is_taken_when_two_looks_find_the_same(edited: Edited) -> None:
    edited.write(rule("Waiting"), rule("Second"))
    assert edited.look(1) == []
    assert edited.look(1) == [
        {
            "event": "reloaded",
            "rules": 2,
            "files": "rules/own.yaml",
            "added": "Second",
            "log_level": "info",
        }
    ]
    assert rules_of(edited) == ["Waiting", "Second"]
    assert edited.look(3) == []


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
    assert edited.look(5) == []  # it is not refused again and again
    edited.write(rule("Waiting", when="waiting_requests >= 6"))
    assert edited.look()[-1]["event"] == "reloaded"
    assert rules_of(edited) == ["Good", "Waiting"]
    assert (edited.gauge(GOOD), edited.gauge(AT)) == (1, edited.clock.now().timestamp())


def _line(line: dict[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in line.items() if key != "log_level")


def test_a_hangup_reads_at_once(edited: Edited) -> None:
    edited.write(rule("Waiting"), rule("Second"))
    edited.clock.advance(HOUR)
    with capture_logs() as log:
        edited.reload.reload()
        edited.reload.reload()
    assert [line["event"] for line in log] == ["reloaded", "reloaded: no file has changed"]
    assert edited.gauge(AT) == edited.clock.now().timestamp()
    assert edited.look() == []


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


def test_other_rules_that_a_configuration_names_are_watched_from_then_on(edited: Edited) -> None:
    """Also while they are wrong."""
    other = edited.folder / "other.yaml"
    other.write_text(edited.write(rule("Waiting")).read_text().replace("severity", "severty"))
    edited.config.write_text(CONFIG.replace("[rules]", "[other.yaml]"))
    assert edited.look()[0]["where"] == "other.yaml:4:9"
    other.write_text(other.read_text().replace("severty", "severity").replace("Waiting", "Other"))
    assert edited.look()[0]["added"] == "Other"
    assert rules_of(edited) == ["Other"]


def test_what_needs_a_restart_is_named(edited: Edited) -> None:
    edited.config.write_text(CONFIG.replace("metrics", "metric") + "retention: 2h\n")
    log = edited.look()
    assert [line.get("key") for line in log] == [None, "sources", "retention"]
    edited.config.write_text(CONFIG)
    assert len(edited.look()) == 1


def test_a_config_map_is_swapped_by_a_link(edited: Edited) -> None:
    """As the kubelet does: files are links into ..data, itself a link to a folder that is made
    beside the old one and takes its place in one step.
    """
    mount = edited.folder / "mount"
    for number, alert in enumerate(("First", "Second")):
        there = mount / f"..2026_11_2{number}"
        there.mkdir(parents=True)
        text = edited.write(rule(alert)).read_text()
        (there / "own.yaml").write_text(text)
    (mount / "..data").symlink_to("..2026_11_20")
    (mount / "own.yaml").symlink_to("..data/own.yaml")
    edited.config.write_text(CONFIG.replace("[rules]", "[mount]"))
    edited.look()
    assert rules_of(edited) == ["First"]
    (mount / "..data_tmp").symlink_to("..2026_11_21")
    (mount / "..data_tmp").rename(mount / "..data")
    edited.look()
    assert rules_of(edited) == ["Second"]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    edited: Edited, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftwatch.service import reload

    read = reload.plan_of_settings

    def slow(settings: object) -> object:
        plan = read(settings)  # type: ignore[arg-type]
        edited.write(rule("Later"))
        monkeypatch.setattr(reload, "plan_of_settings", read)
        return plan

    monkeypatch.setattr(reload, "plan_of_settings", slow)
    edited.write(rule("Earlier"))
    (line,) = edited.look(2)
    assert line["event"] == "not reloaded yet: a file changed while it was read"
    assert rules_of(edited) == ["Waiting"]
    edited.look(1)
    assert rules_of(edited) == ["Later"]
