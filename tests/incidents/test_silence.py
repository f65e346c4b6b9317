"""Matchers as Alertmanager reads them, and when a silence holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import (
    Silence,
    labels_of,
    matches,
    parse_matchers,
    silenced_by,
    silencing,
)
from driftwatch.matchers import Matcher, parse_matcher

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def silence(*texts: str, id_: str = "s1", hours: float = 1) -> Silence:
    return Silence(id_, parse_matchers(texts), NOW + hours * HOUR, "Ana", NOW, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alert=X", Matcher("alert", "=", "X")),
        ("alert!=X", Matcher("alert", "!=", "X")),
        ("alert=~X|Y", Matcher("alert", "=~", "X|Y")),
        ("alert!~X.*", Matcher("alert", "!~", "X.*")),
        (' alert = "X Y" ', Matcher("alert", "=", "X Y")),
        ("alert=a=b", Matcher("alert", "=", "a=b")),
        ("alert=", Matcher("alert", "=", "")),
    ],
)
def test_matchers_are_read(text: str, expected: Matcher) -> None:
    assert parse_matcher(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "alert", "=x", "al ert=x", "1a=x", "alert=~(", "alert!~*", "a-b=c", "a=" + "x" * 600],
)
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_matcher(text)
    assert caught.value.message


def test_a_bad_regular_expression_is_named() -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        parse_matcher("instance=~gpu-(1")


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("instance=gpu-1:80", "gpu-1:80", True),
        ("instance=gpu-1", "gpu-1:80", False),
        ("instance!=gpu-1", "gpu-1:80", True),
        ("instance=~gpu-1", "gpu-1:80", False),  # the whole label has to match
        ("instance=~gpu-1.*", "gpu-1:80", True),
        ("instance=~a|gpu-1:80", "gpu-1:80", True),
        ("instance=~a|gpu", "gpu-1:80", False),  # anchored around both branches
        ("instance!~gpu-1.*", "gpu-1:80", False),
        ("instance=~.*", "two\nlines", True),
        ("instance=~a", "a\n", False),
    ],
)
def test_matching(text: str, label: str, expected: bool) -> None:
    assert parse_matcher(text).matches({"instance": label}) is expected


def test_the_button_silences_one_engine_of_a_server_that_has_several() -> None:
    engines = [
        Incident(
            id=f"{number}" * 12,
            key=f"X{number}",
            rule="X",
            alert="X",
            severity="page",
            target={"instance": "gpu-1:80", "engine": f"{number}", "pool": "rag"},
            state="firing",
            started_at=NOW,
            last_true_at=NOW,
        )
        for number in range(3)
    ]
    for one in engines:
        button = Silence("s", silencing(one), NOW + HOUR, "Ana", NOW, NOW)
        assert [e.id for e in engines if matches(button, labels_of(e))] == [one.id]


def test_a_missing_label_reads_as_empty() -> None:
    assert parse_matcher("pool=").matches({})
    assert parse_matcher("pool!=rag").matches({})
    assert not parse_matcher("pool=rag").matches({})


@pytest.mark.parametrize("texts", [(), ("alert=~.*",), ("alert!=x",), ("a=", "b!~x.+")])
def test_what_would_quieten_everything_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        parse_matchers(texts)


def test_every_matcher_has_to_match() -> None:
    both = silence("alert=X", "instance=~h.*")
    assert matches(both, {"alert": "X", "instance": "h1"})
    assert not matches(both, {"alert": "X", "instance": "g1"})


def test_it_holds_from_its_beginning_up_to_its_end() -> None:
    one = silence("alert=X")
    assert [one.active(NOW + n * HOUR / 2) for n in (-1, 0, 1, 2, 3)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    ended = Silence(
        "s", one.matchers, one.until, "Ana", NOW, NOW, expired_at=NOW + timedelta(minutes=10)
    )
    assert ended.active(NOW + timedelta(minutes=9))
    assert not ended.active(NOW + timedelta(minutes=10))


def incident() -> Incident:
    return Incident(
        id="0" * 12,
        key="K",
        rule="rule-1",
        alert="X",
        severity="ticket",
        target={"instance": "h1", "alert": "label of the target"},
        state="firing",
        started_at=NOW,
        last_true_at=NOW,
        firing_at=NOW,
    )


def test_labels_are_the_targets_and_the_rules_the_latter_win() -> None:
    assert labels_of(incident()) == {
        "instance": "h1",
        "alert": "X",
        "rule": "rule-1",
        "severity": "ticket",
    }


def test_the_longest_of_several_is_named_in_any_order() -> None:
    several = [
        silence("alert=X", id_="b", hours=2),
        silence("severity=ticket", id_="c", hours=3),
        silence("rule=rule-1", id_="a", hours=3),
        silence("alert=Y", id_="d", hours=9),
    ]
    assert silenced_by(incident(), several, NOW) == "a"
    assert silenced_by(incident(), several[::-1], NOW) == "a"
    assert silenced_by(incident(), several, NOW + 4 * HOUR) is None
