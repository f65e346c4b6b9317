"""Routes of a configuration: every problem at its place, and what no incident reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.errors import ConfigError
from driftwatch.settings import ReceiverSettings, load_settings
from driftwatch.settings.routes import SEVERITIES, RouteSettings, never_reached

HEAD = """\
receivers:
  - {name: oncall, stdout: {}}
  - {name: lead, stdout: {}}
"""


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "driftwatch.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    try:
        load_settings(path)
    except ConfigError as error:
        return [
            f"{p.line}:{p.column} {p.code}: {p.message}" + (f" ({p.help_text})" * bool(p.help_text))
            for p in error.problems
        ]
    return []


def test_every_problem_at_once(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    text = """\
pools: [{name: a, receivers: [oncal]}, {name: b, receivers: []}]
routes:
  - {matchers: [severity=pages], receivers: [oncall, oncall]}
  - {matchers: [severity=page], receivers: []}
  - {matchers: ['pool=~"("', pool], receivers: [leed], escalate: [{after: 15m, to: [ld]}]}
  - {matchers: [pool=a, 'pool=~b.*'], receivers: [oncall], repeat_every: 5s}
  - {receivers: [oncall], escalate: [{after: 1h, to: [lead]}, {after: 30m, to: [lead]}]}
  - {receivers: [oncall], escalate: [{after: 1h, to: [oncall]}], match: [x=y]}
fallback_receiver: nobody
digest_hour: 24
"""
    golden("settings/routes.txt", "\n".join(problems(tmp_path, text)) + "\n")


def test_a_route_that_takes_everything_stands_last(tmp_path: Path) -> None:
    text = """\
routes:
  - {matchers: [severity=page], receivers: [oncall]}
  - {receivers: [oncall]}
  - {matchers: [severity=ticket], receivers: [lead]}
  - {matchers: [pool=a], receivers: [lead]}
"""
    assert problems(tmp_path, text) == [
        "6:6 unreachable-route: this route takes every incident: none reaches the 2 routes after it"
        " (put it last, or give it matchers)"
    ]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (["severity=page"], ["severity=page", "pool=a"]),
        (['pool=~"rag-.*"'], ["pool=rag-8b"]),
        (["pool!=batch"], ["pool=rag-8b", "severity=page"]),
    ],
)
def test_a_route_behind_one_that_takes_more_is_never_reached(
    tmp_path: Path, earlier: list[str], later: list[str]
) -> None:
    routes = "".join(f"  - matchers: {m}\n    receivers: [lead]\n" for m in (earlier, later))
    assert problems(tmp_path, f"routes:\n{routes}") == [
        "7:5 unreachable-route: no incident reaches this route: route 1 in line 5 takes them"
    ]
    swapped = "".join(f"  - matchers: {m}\n    receivers: [lead]\n" for m in (later, earlier))
    assert problems(tmp_path, f"routes:\n{swapped}") == []


def test_three_routes_that_take_a_severity_each_leave_nothing(tmp_path: Path) -> None:
    texts = [[f"severity={one}"] for one in SEVERITIES] + [["pool=a"]]
    routes = "".join(f"  - {{matchers: {m}, receivers: [lead]}}\n" for m in texts)
    assert [p.split(" ")[1] for p in problems(tmp_path, f"routes:\n{routes}")] == [
        "unreachable-route:"
    ]


matchers = st.builds(
    "{}{}{}".format,
    st.sampled_from(["severity", "pool", "alert"]),
    st.sampled_from(["=", "!=", "=~", "!~"]),
    st.sampled_from(["page", "ticket", "a", "b", "a|b", ".*", "page|ticket"]),
)
labels = st.fixed_dictionaries(
    {
        "severity": st.sampled_from(SEVERITIES),
        "pool": st.sampled_from(["", "a", "b", "page"]),
        "alert": st.sampled_from(["a", "b", "ticket"]),
    }
)


@settings(deadline=None)
@given(st.lists(st.lists(matchers, max_size=3), min_size=1, max_size=5), labels)
def test_what_is_never_reached_no_labels_reach(
    texts: list[list[str]], incident: dict[str, str]
) -> None:
    routes = []
    for each in texts:
        try:
            routes.append(RouteSettings.model_validate({"matchers": each, "receivers": ["x"]}))
        except ValueError:  # it contradicts itself, or names a severity that there is not
            continue
    takes = [at for at, one in enumerate(routes) if all(m.matches(incident) for m in one.parsed)]
    assert not takes or takes[0] not in never_reached(routes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "daily"),
        ({"severities": ["page"]}, "off"),
        ({"severities": ["page", "notice"]}, "daily"),
        ({"severities": ["page"], "notices": "daily"}, "daily"),
        ({"notices": "each"}, "each"),
    ],
)
def test_how_a_receiver_takes_notices(fields: dict[str, object], expected: str) -> None:
    receiver = ReceiverSettings.model_validate({"name": "a", "stdout": {}, **fields})
    assert receiver.takes_notices == expected
