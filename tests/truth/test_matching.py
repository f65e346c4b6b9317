from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from truth_judge.facts import (
    DAY_SECONDS,
    GRACE_SECONDS,
    MONTH_SECONDS,
    Episode,
    Finding,
    Stretch,
    findings_of,
    joined_of,
)
from truth_judge.matching import alarms, detections, quiet_months

A, B = "a:8000", "b:8000"
SLOW = Episode(
    "slowdown",
    1000.0,
    5000.0,
    1.15,
    frozenset({A}),
    frozenset({"Slower"}),
    notices=frozenset({"Note"}),
)
QUIET = Episode("season", 0.0, DAY_SECONDS)


def fired(
    at: float, rule: str = "Slower", *instances: str, severity: str = "page", event: str = "firing"
) -> Finding:
    return Finding(event, rule, severity, at, at - 60.0, frozenset(instances or {A}))


def stretch(*findings: Finding, episodes: tuple[Episode, ...] = (SLOW,)) -> Stretch:
    return Stretch("s", "seed 1", 0.0, 2 * DAY_SECONDS, (A, B), episodes, findings)


@pytest.mark.parametrize(
    ("at", "delay"),
    [
        (999.0, None),
        (1000.0, 0.0),
        (1600.0, 600.0),
        (5000.0 + GRACE_SECONDS, 4000.0 + GRACE_SECONDS),
        (5001.0 + GRACE_SECONDS, None),
    ],
)
def test_an_episode_is_found_from_its_start_to_its_end_and_the_grace(
    at: float, delay: float | None
) -> None:
    (found,) = detections([stretch(fired(at))])
    assert found.delay_seconds == delay


def test_a_server_that_joins_an_incident_is_found() -> None:
    page = {"event": "firing", "alert": "Slower", "severity": "page", "diagnosis": None}
    times = {"evaluated_at": _iso(900.0), "started_at": _iso(800.0)}
    servers = {"concerned": 1, "first": [B]}
    made = page | {"times": times, "servers": servers, "advice": None, "evidence": {}}
    both = [
        {"instance": instance, "since": _iso(since), "met": met, "inhibited_by": None}
        for instance, since, met in ((B, 800.0, True), (A, 1500.0, True), ("c:8000", 1600.0, False))
    ]
    incident = {"alert": "Slower", "severity": "page", "servers": both}
    incident |= {"firing_at": _iso(900.0), "resolved_at": _iso(4000.0)}
    findings = findings_of([made])
    joined = joined_of([incident], findings)
    assert joined == (Finding("joined", "Slower", "page", 1500.0, 1500.0, frozenset({A})),)
    one = stretch(*findings, *joined)
    (found,) = detections([one])
    assert found.delay_seconds == 500.0
    assert [alarm.verdict for alarm in alarms([one])] == ["false"]  # one page was sent, about B


def test_a_server_joins_when_a_page_names_it_or_never() -> None:
    assert joined_of([{"firing_at": None}], ()) == ()
    joined = replace(fired(2000.0), event="joined")
    (found,) = detections([stretch(fired(400.0, "Slower", B), joined)])
    assert (found.delay_seconds, found.told) == (1000.0, 1)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def test_the_first_finding_counts_and_a_resolved_one_never() -> None:
    resolved = replace(fired(1100.0), event="resolved")
    (found,) = detections([stretch(fired(3000.0), resolved, fired(2000.0))])
    assert found.delay_seconds == 1000.0


def test_a_limit_that_is_paged_before_its_episode_needs_no_second_page() -> None:
    limit = replace(SLOW, kind="limit-tokens", allowed=frozenset({"Slower"}))
    before, resolved = fired(400.0), replace(fired(700.0), event="resolved")
    of_the_other = fired(400.0, "Slower", B)
    for findings, episode, delay in (
        ((before,), limit, 0.0),
        ((before, resolved), limit, None),
        ((of_the_other,), limit, None),
        ((before,), SLOW, None),  # what was no fault then is no find now
    ):
        (found,) = detections([stretch(*findings, episodes=(episode,))])
        assert found.delay_seconds == delay


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (fired(2000.0), "found"),
        (fired(2000.0, "Slower", A, B), "found"),  # one of its servers is slow
        (replace(fired(2000.0), instances=frozenset()), "found"),  # more than a page names
        (fired(2000.0, rule="Note", severity="notice"), "found"),
        (fired(2000.0, rule="Note"), "unexpected"),  # somebody was woken for it
        (fired(2000.0, severity="notice"), "unexpected"),  # nobody was
        (fired(2000.0, rule="Other"), "unexpected"),
        (fired(2000.0, "Slower", B), "false"),  # the other server is healthy
        (fired(900.0), "false"),
        (fired(5001.0 + GRACE_SECONDS, rule="Other"), "false"),
    ],
)
def test_what_the_truth_says_of_a_finding(finding: Finding, verdict: str) -> None:
    (judged,) = alarms([stretch(finding)])
    assert judged.verdict == verdict


def test_an_episode_in_which_nobody_should_be_told_excuses_nothing() -> None:
    one = stretch(fired(2000.0), episodes=(QUIET,))
    assert [a.verdict for a in alarms([one])] == ["false"]
    assert detections([one]) == []
    assert sum(quiet_months([one]).values()) == pytest.approx(4 * DAY_SECONDS / MONTH_SECONDS)


def test_quiet_time_is_what_no_window_covers_of_each_server_by_day() -> None:
    again = replace(SLOW, start_seconds=4000.0, end_seconds=9000.0)  # overlaps the first
    months = quiet_months([stretch(episodes=(SLOW, again))])
    lost = 9000.0 + GRACE_SECONDS - 1000.0
    assert months == pytest.approx(
        {
            ("seed 1", 0): (2 * DAY_SECONDS - lost) / MONTH_SECONDS,
            ("seed 1", 1): 2 * DAY_SECONDS / MONTH_SECONDS,
        }
    )


def test_a_server_counts_only_while_it_was_there() -> None:
    one = replace(stretch(episodes=()), present={B: [(3600.0, 7200.0), (9000.0, 9100.0)]})
    assert sum(quiet_months([one]).values()) == pytest.approx(
        (2 * DAY_SECONDS + 3600.0 + 100.0) / MONTH_SECONDS
    )


def test_a_notice_does_not_find_what_must_page() -> None:
    note = fired(2000.0, rule="Note", severity="notice")
    (found,) = detections([stretch(note, fired(1500.0, severity="notice"))])
    assert found.delay_seconds is None
    informs = replace(SLOW, pages=frozenset())
    (found,) = detections([stretch(note, episodes=(informs,))])
    assert found.delay_seconds == 1000.0


def test_a_loss_smaller_than_promised_is_no_quiet_time() -> None:
    loss = replace(SLOW, pages=frozenset({"ReplicaSlow"}), notices=frozenset())
    small = replace(loss, size=0.1, pages=frozenset(), start_seconds=50_000.0, end_seconds=57_200.0)
    said = [fired(2000.0, "ReplicaSlow"), fired(50_600.0, "ReplicaSlow"), fired(70_000.0)]
    one = stretch(*said, episodes=(loss, small))
    assert [a.verdict for a in alarms([one])] == ["found", "small", "false"]
    without = sum(quiet_months([replace(one, episodes=(loss,))]).values())
    lost = (7200.0 + GRACE_SECONDS) / MONTH_SECONDS
    assert sum(quiet_months([one]).values()) == pytest.approx(without - lost)


def test_delay_counts_from_when_it_could_be_seen() -> None:
    late = replace(SLOW, visible_seconds=1400.0)
    (found,) = detections([stretch(fired(2000.0), fired(2600.0), episodes=(late,))])
    assert (found.delay_seconds, found.told) == (600.0, 2)
    (found,) = detections([stretch(fired(1200.0), episodes=(late,))])
    assert found.delay_seconds == 0.0
