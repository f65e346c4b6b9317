"""Matchers as Alertmanager reads them, and what a silence holds back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from made_incidents import NOON, incident_of

from driftwatch.errors import UsageError
from driftwatch.incidents.silence import (
    MOST_MATCHERS,
    Silence,
    parse_matchers,
    silence_matchers,
    silenced_by,
    silences_incident,
)
from driftwatch.matchers import Matcher, parse_matcher

HOUR = timedelta(hours=1)


def silence(
    *texts: str, id_: str = "s1", hours: float = 1, expired_at: datetime | None = None
) -> Silence:
    return Silence(
        id=id_,
        matchers=parse_matchers(texts),
        until=NOON + hours * HOUR,
        created_by="Ana",
        created_at=NOON,
        starts_at=NOON,
        expired_at=expired_at,
    )


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
    assert Silence.read(silence("pool=p", text).text()).matchers[1] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alert", "not a matcher"),
        ("al ert=x", "not a matcher"),
        ("a-b=c", "not a matcher"),
        ("a=" + "x" * 600, "at most 512"),
        ("alert=~(", "not a regular expression"),
        # what cannot be searched in bounded time
        ("pool=~(?!x)a", "is not searched"),
        ("pool=~(?<=x)a", "is not searched"),
        ("pool=~(?:a{1000}){1000}", "is not searched"),
    ],
)
def test_what_is_no_matcher_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_matcher(text)


@pytest.mark.parametrize(
    ("text", "label", "fits"),
    [
        ("instance=gpu-1:80", "gpu-1:80", True),
        ("instance=gpu-1", "gpu-1:80", False),
        ("instance=~gpu-1", "gpu-1:80", False),  # the whole label has to match
        ("instance=~a|gpu", "gpu-1:80", False),  # anchored around both branches
        ("instance!~gpu-1.*", "gpu-1:80", False),
        ("instance=~.*", "two\nlines", True),
        ("instance=~a", "a\n", False),
        ("instance=~(?i)rag", "RAG", True),
        ("instance=~a*", "a" * 2000, True),
        ("instance=~(a|aa)+|(.*)*x|(a?){60}a{60}", "a" * 5000 + "!", False),  # and it does not hang
        ("pool=", "no pool", True),  # a missing label reads as empty
        ("pool!=rag", "no pool", True),
        ("pool=rag", "no pool", False),
    ],
)
def test_matching(text: str, label: str, fits: bool) -> None:
    assert parse_matcher(text).matches({"instance": label}) is fits


@pytest.mark.parametrize(
    "texts",
    [(), ("alert=~.*",), ("alert!=x",), ("a=", "b!~x.+"), ("pool=a",) * (MOST_MATCHERS + 1)],
)
def test_what_would_silence_everything_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        parse_matchers(texts)


def test_it_holds_from_its_beginning_up_to_its_end() -> None:
    one, times = silence("alert=X"), [NOON + n * HOUR / 2 for n in (-1, 0, 1, 2, 3)]
    assert [one.active(at) for at in times] == [False, True, True, False, False]
    ended = silence("alert=X", expired_at=NOON + HOUR / 4)
    assert [ended.active(at) for at in times] == [False, True, False, False, False]


TWO = incident_of(servers=("a:8000", "b:8000/1"), labels={"signal": "prompts"})


@pytest.mark.parametrize(
    ("texts", "by"),
    [
        (["alert=X"], "0"),
        (["pool=p", "pool=q"], "0"),
        (["rule=X", "severity=page"], "0"),  # of two that are as long the first
        (["signal=prompts"], "0"),
        (["instance=a:8000"], None),
        (["pool=q,alert=X"], None),  # every matcher has to match
        (["pool=p,alert=X"], "0"),
        (["instance=a:8000", "instance=b:8000"], "0"),
        (["instance=a:8000", "engine=1"], "0"),
        (["instance=~[ab]:.*"], "0"),
        (["pool=q"], None),
    ],
)
def test_an_incident_is_silenced_where_each_of_its_servers_is(
    texts: list[str], by: str | None
) -> None:
    silences = [silence(*text.split(","), id_=str(number)) for number, text in enumerate(texts)]
    assert silenced_by(TWO, silences, NOON) == by
    assert silenced_by(TWO, silences[::-1], NOON) == by
    assert silenced_by(TWO, silences, NOON + HOUR) is None
    assert any(silences_incident(one, TWO) for one in silences) is any(
        "pool=q" not in text for text in texts
    )


def test_the_longest_of_a_server_and_the_first_to_end_of_several() -> None:
    several = [
        silence("instance=a:8000", id_="short"),
        silence("instance=a:8000", id_="long", hours=5),
        silence("engine=1", id_="other", hours=3),
    ]
    assert silenced_by(TWO, several, NOON) == "other"
    assert silenced_by(incident_of(servers=("a:8000",)), several, NOON) == "long"


def test_the_button_silences_the_only_server_or_the_pool() -> None:
    one = incident_of(servers=("b:8000/1",))
    assert [m.text for m in silence_matchers(one)] == ["alert=X", "instance=b:8000", "engine=1"]
    assert [m.text for m in silence_matchers(TWO)] == ["alert=X", "pool=p"]
