"""The life of one incident: minutes of its servers in, events out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from driftwatch.incidents.incident import Incident
from driftwatch.incidents.life_cycle import PoolRule, Verdict, step, without_servers
from driftwatch.model import TargetKey

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULE = PoolRule("X", "X", "page", "p", labels={"model_name": "m"})
# T true, F false, H false but held (`until`, or a target is still missed), ? unknown, . no verdict
VERDICTS = {
    "T": Verdict(True, True),
    "F": Verdict(False, False),
    "H": Verdict(False, True),
    "?": Verdict(None, None),
}


def at(minute: int) -> datetime:
    return START + minute * MINUTE


def key(number: int) -> TargetKey:
    return TargetKey(f"s{number}:8000", "0")


def played(
    servers: list[str],
    rule: PoolRule = RULE,
    inhibited: str = "",
    before: Incident | None = None,
    first: int = 1,
) -> tuple[list[str], str, Incident | None]:
    """Events by minute, the number of concerned servers in each, and the incident at the end.

    ``inhibited``: of the first server, ``x`` where another alert inhibits the rule.
    """
    incident, events, counts = before, [], ""
    for number in range(len(servers[0])):
        here = {key(i): VERDICTS[of[number]] for i, of in enumerate(servers) if of[number] != "."}
        by = {key(0): "Y"} if inhibited[number : number + 1] == "x" else {}
        incident, event = step(incident, rule, at(first + number), here, by)
        if event is not None:
            events.append(f"{first + number} {event}")
        if incident is not None and incident.state == "resolved":
            incident = None
        counts += str(len(incident.concerned)) if incident is not None else "-"
    return events, counts, incident


# name, for and keep_firing_for in minutes, servers, events, concerned servers by minute
LIVES = [
    ("fires at once", 0, 0, ["FTTF"], ["2 firing", "4 resolved"], "-11-"),
    ("for counts true minutes", 3, 0, ["TTTF"], ["3 firing", "4 resolved"], "001-"),
    ("a false minute drops it", 3, 0, ["TTFTT"], [], "00-00"),
    ("unknown minutes only pause it", 3, 0, ["T?T.T"], ["5 firing"], "00001"),
    ("unknown minutes resolve nothing", 0, 2, ["TF??.F"], ["1 firing", "6 resolved"], "11111-"),
    ("false minutes add up to the end", 0, 3, ["TFFF"], ["1 firing", "4 resolved"], "111-"),
    ("a true minute starts them anew", 0, 2, ["TFTFF"], ["1 firing", "5 resolved"], "1111-"),
    ("what is held stays", 0, 2, ["THHHFF"], ["1 firing", "6 resolved"], "11111-"),
    ("what is held does not open", 0, 0, ["HHH"], [], "---"),
    (
        "servers join and leave quietly",
        0,
        1,
        ["TTFFF", "FTTFF"],
        ["1 firing", "4 resolved"],
        "121--",
    ),
    ("the last one ends it", 0, 0, ["TFF", "FTF"], ["1 firing", "3 resolved"], "11-"),
    ("a server waits for its own time", 2, 0, ["TTTF", "FFTT"], ["2 firing"], "0111"),
    (
        "who recovered comes back while the target is missed",
        *(0, 2),
        ["TFFHHHFFF", "THHHHFFFF"],
        ["1 firing", "8 resolved"],
        "2212221--",
    ),
    ("it fires again as another", 0, 0, ["TFT"], ["1 firing", "2 resolved", "3 firing"], "1-1"),
]


@pytest.mark.parametrize(("name", "wait", "keep", "servers", "events", "counts"), LIVES)
def test_life(
    name: str, wait: int, keep: int, servers: list[str], events: list[str], counts: str
) -> None:
    rule = replace(RULE, for_seconds=60.0 * wait, keep_firing_for_seconds=60.0 * keep)
    *told, incident = played(servers, rule)
    assert tuple(told) == (events, counts), name
    # nothing but what is stored is needed to go on
    for cut in range(1, len(servers[0])):
        first, _, half = played([one[:cut] for one in servers], rule)
        half = None if half is None else Incident.read(half.text())
        rest, _, again = played([one[cut:] for one in servers], rule, before=half, first=cut + 1)
        assert (first + rest, again) == (events, incident), (name, cut)


def test_a_window_names_an_earlier_beginning() -> None:
    began = at(-8)
    incident, _ = step(None, RULE, at(2), {key(0): Verdict(True, True, began)})
    assert incident is not None and incident.started_at == began


def test_a_minute_that_counted_counts_once() -> None:
    rule = replace(RULE, for_seconds=180.0)
    _, _, incident = played(["TT"], rule)
    again, event = step(incident, rule, at(2), {key(0): VERDICTS["T"]})
    assert (again, event) == (incident, None)


def test_a_rule_may_change_while_its_incident_is_pending_not_after() -> None:
    slow, fast = replace(RULE, for_seconds=600.0), replace(RULE, severity="ticket")
    _, _, pending = played(["TTT"], slow)
    events, _, fired = played(["T"], fast, before=pending, first=4)
    assert events == ["4 firing"]
    assert fired is not None and fired.severity == "ticket"
    _, _, later = played(["T"], slow, before=fired, first=5)
    assert later is not None and (later.severity, later.is_firing) == ("ticket", True)


INHIBITED = [
    ("it does not fire there", ["TTTT"], "xxxx", [], "0000"),
    ("it fires a quarter of an hour after", ["T" * 18], "xx", ["17 firing"], "0" * 16 + "11"),
    ("recovered within it: nobody is told", ["TTTTF"], "xx", [], "0000-"),
    ("another server fires all the same", ["TTT", "FTT"], "xxx", ["2 firing"], "011"),
    ("what fired is quiet, and ends", ["TTTFF"], ".xx.", ["1 firing", "4 resolved"], "100--"),
    ("what fired speaks again at once", ["TTTT"], ".xx.", ["1 firing"], "1001"),
]


@pytest.mark.parametrize(("name", "servers", "by", "events", "counts"), INHIBITED)
def test_inhibited(name: str, servers: list[str], by: str, events: list[str], counts: str) -> None:
    assert played(servers, inhibited=by)[:2] == (events, counts), name


def test_an_incident_names_the_alert_that_speaks_for_all_of_its_servers() -> None:
    _, _, incident = played(["TT"], inhibited=".x")
    assert incident is not None and incident.inhibited_by == "Y"
    _, _, other = played(["TT", "TT"], inhibited=".x")
    assert other is not None and other.inhibited_by is None


def test_of_one_that_never_fired_and_whose_servers_are_gone_nobody_is_told() -> None:
    _, _, pending = played(["T"], replace(RULE, for_seconds=300.0))
    assert pending is not None
    assert without_servers(pending, at(2), {key(0): "gone"}) == (None, None)
    assert without_servers(pending, at(2), {key(7): "gone"}) == (pending, None)
