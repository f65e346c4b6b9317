"""Incidents: which come first, what a filter leaves, one with its picture, and what people do."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes.manual_clock import ManualClock
from made_incidents import with_values
from page_cases import CASES
from web_cases import (
    ANA,
    BEN,
    END,
    MINUTE,
    Recorded,
    browser,
    evidence_of,
    fired,
    fleet_database,
    send,
    shown,
    web_at,
)

from driftwatch.incidents.silence import silence_matchers
from driftwatch.model import Slo
from driftwatch.numbers import moment
from driftwatch.pipeline.build_page import build_page
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord
from driftwatch.web.app import Web
from driftwatch.web.incidents import looks
from driftwatch.web.plots import incident_plot
from tests.outbox import latest_actions

EVERY_STATE = [
    fired("1", "gpu-1:8000"),
    fired("2", "gpu-2:8000"),
    fired("3", "gpu-3:8000", severity="ticket"),
    fired("4", "gpu-4:8000", severity="notice", rule="Drift"),
    fired("5", "gpu-5:8000", firing=False, rule="PrefixHitsFell"),
    fired("6", "gpu-1:8000", resolved_at=END),
    fired("7", "10%_b:1/1", pool='a"b'),
]


def test_open_ones_come_first_and_each_filter_leaves_its_own(tmp_path: Path) -> None:
    rows = [{"instance": "gpu-1:8000", "restarted": False}]
    fleet_database(tmp_path / "states.db", rows, EVERY_STATE)
    with Store.open(tmp_path / "states.db") as store:
        store.acknowledge("1" * 12, "Ana <b>", END)
        for one in EVERY_STATE[:2]:  # no tick has read these silences
            matchers = silence_matchers(one)
            store.add_silence(matchers, until=END + MINUTE, by="Ben", at=END, comment="")
    there = web_at(tmp_path / "states.db", END, tmp_path)
    client = browser(there)

    def listed(**query: str) -> str:
        answer = client.get("/incidents", params=query)
        return "".join(re.findall(r"/incidents/(\w)\w{11}", answer.text))

    assert listed() == "7123456"  # pages first, and of these what fires and nobody has
    assert listed(size="4") + listed(size="4", page="2") == listed()
    assert listed(q='a"b') == listed(q="10%_b:1/1") == listed(q="10%_B") == "7"
    assert listed(q="gpu- drift") == "4"
    assert listed(q="GPU-3:8000") == "3" and listed(q="6" * 8) == "6"
    states = ("firing", "acknowledged", "silenced", "pending", "resolved", "open")
    assert [{*listed(state=one)} for one in states] == [
        {*"734"}, {"1"}, {*"12"}, {"5"}, {"6"}, {*"71243"},
    ]  # fmt: skip
    assert shown(there, "/incidents")["title"] == "5 open incidents, 1 pending"
    part = shown(there, "/incidents", size="4", page="900")["part"]
    assert (part.page, part.pages, part.after) == (2, 2, None)
    waits = client.get("/incidents/" + "5" * 12).text
    assert "fires at 03:09 UTC if it lasts 30 min. Nobody got anything." in waits
    assert "<b>100\xa0%</b> of requests in target in 10 min; 50\xa0% left." in waits
    silent = shown(there, "/incidents/" + "6" * 12)
    assert (silent["plot"], silent["meanwhile"]) == (
        None, "the process ran on: it did not restart",
    )  # fmt: skip
    html = client.get("/incidents?q=<script><b>").text + client.get("/incidents").text
    assert "<script>" not in html and "Ana <b>" not in html


def test_an_incident_has_its_page_its_picture_and_its_deliveries(
    web: Web, firing: Recorded
) -> None:
    client, path = browser(web), f"/incidents/{firing.incident_id}"
    html = unescape(client.get(path).text)
    view = shown(web, path)
    assert "</span> host:8000: first token takes 2.5 s" in html.replace('<span class="w">', "")
    assert view["looks"][0].diagnosis.path and "Is something costing throughput?" in html
    assert [one.receiver for one in view["deliveries"]] == ["oncall"] and "Sent to oncall, " in html
    assert "driftwatch explain" in html
    assert client.get(f"/incidents/{firing.incident_id[:6]}").status_code == 200


def test_the_picture_marks_the_page_the_restart_and_the_change() -> None:
    minutes = [
        {
            "instance": "a:1",
            "end": END + at * MINUTE,
            "ttft_seconds_buckets": [10.0, 20.0, 100.0] if at >= 30 else [90.0, 100.0, 100.0],
            "speed_at_equal_load_ratio": 0.8 if at >= 30 else 1.0,
            "restarted": at == 50,
            "configuration_changed": at == 50,
            "max_num_seqs": 256.0 if at < 50 else 512.0,
            "max_num_seqs_inferred": False,
        }
        for at in range(1, 61)
    ]
    rows = evidence_of(minutes).select(*STORED_SCHEMA).with_columns(seconds=pl.lit(60.0))
    began, fired_at = (END + timedelta(minutes=one) for one in (30, 33))
    incident = with_values(fired("a", "a:1", started_at=began), firing_at=fired_at)
    columns = {"slower_at_equal_load", "target_missed"}
    plot = incident_plot(rows, Slo(1.0, None, 0.95), incident, columns, None)
    assert plot is not None
    missed, slow = "80 % of requests missed TTFT 1 s", "speed at equal load 80 %"
    assert plot.title == f"Worst 5 min: {missed}; {slow} of the baseline's"
    drawn = str(plot.svg)
    assert "<title>it fired, and nobody got it</title>" in drawn
    assert "a point every 5 min" in drawn and drawn.count(">100<") == 2  # room above 100 %
    assert "<title>a:1: restart, max_num_seqs 256 → 512</title>" in drawn
    assert drawn.count('class="hatch"') == 2 and "requests that miss TTFT 1 s, %" in drawn
    late, inside = pl.col("end") > fired_at, pl.col("end") > began
    assert incident_plot(rows.filter(~inside), None, incident, columns, None) is None
    hot = pl.when(inside).then(1.5e9).otherwise(2e9).alias("gpu_sm_clock_hertz")
    throttled = incident_plot(rows.with_columns(hot), None, incident, columns, None)
    assert throttled is not None and throttled.title.endswith("; SM clock 1,500 MHz")
    sums = {"prompt_tokens_sum": pl.when(late).then(900.0).otherwise(600.0),
            "generation_tokens_sum": pl.when(late).then(900.0).otherwise(100.0)}  # fmt: skip
    n = {f"{stem}_tokens_count": pl.lit(10.0) for stem in ("prompt", "generation")}
    both = incident_plot(rows.with_columns(**sums, **n), None, incident, {"lengths_moved"}, None)
    lengths = "prompts 72.0 to 90.0, generations 42.0 to 90.0"
    assert both is not None and both.title == f"Tokens of a request: {lengths}"
    calm = rows.with_columns(ttft_seconds_buckets=pl.lit([100.0] * 3))
    alone = incident_plot(calm, Slo(1.0, None, 0.95), incident, columns, None)
    assert alone is not None and alone.title == f"Worst 5 min: {slow} of the baseline's"
    silent = rows.with_columns(seconds_since_last_token=pl.when(late).then(600.0).otherwise(0.0))
    peak = pl.when(pl.col("end") == END + 5 * MINUTE).then(1e3).when(late).then(32.0).otherwise(0)
    waits = rows.with_columns(queue_seconds_sum=peak, queue_seconds_count=1.0)
    drawn = incident_plot(waits, None, incident, {"limit_full"}, None)
    assert drawn is not None and "s; axis cut at 38, 200 outside the incident" in str(drawn.svg)
    hung = incident_plot(silent, None, incident, {"seconds_since_last_token"}, None)
    assert hung is not None and hung.title == "No tokens for 10 min"


def test_the_page_as_it_was_made_stands_beside_the_last_look(web: Web, firing: Recorded) -> None:
    with Store.open(firing.path, migrate=False) as store:
        page = store.incident(firing.incident_id).page
    assert page is not None and page.diagnosis is not None
    today = firing.now.date()
    (alone,) = looks(page, today)
    assert alone.line_1 == page.summary and alone.diagnosis == page.diagnosis
    over = page.model_copy(
        update={"event": "resolved", "first": page.as_first, "summary": "RESOLVED",
                "diagnosis": replace(page.diagnosis, limits=())}
    )  # fmt: skip
    first, last = looks(over, today)
    assert (first.title, first.line_1) == (alone.title, page.summary)
    assert last.title.startswith("At its end, ") and last.diagnosis is None
    assert last.line_1 == "RESOLVED"
    assert [*looks(over.model_copy(update={"first": None}), today)] == [last]


def test_a_change_can_be_copied_until_the_incident_is_over(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    with opened() as store:
        one = store.incident(copied.incident_id)
        case = CASES["budget"]
        page = build_page(case.finding, one, "firing", copied.now)
        one = with_values(one, page=page)
        store.commit_tick(TickRecord(copied.now, incidents=[one]))
    html = unescape(browser(web).get(f"/incidents/{one.id}").text)
    assert ">--max-num-batched-tokens=2048</span></pre>" in html
    with opened() as store:
        over = with_values(one, resolved_at=copied.now)
        store.commit_tick(TickRecord(copied.now + MINUTE, incidents=[over]))
    html = browser(web).get(f"/incidents/{one.id}").text
    assert re.findall("<p>(Explain it[^<]*|Arguments[^<]*)", html) == ["Explain it as of its end"]


def test_a_silence_that_held_a_page_back_is_named(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    path = f"/incidents/{copied.incident_id}"
    with sqlite3.connect(copied.path) as connection:
        connection.execute("DELETE FROM deliveries")
    nobody = "Nobody got it: no receiver takes"
    assert nobody in browser(web).get(path).text
    assert "The reason or comment: is missing" in send(browser(web), path, "silence", ANA).text
    for _ in range(2):  # of one form that is sent twice the second changes nothing
        send(browser(web), path, "silence", ANA, comment="draining")
    (held,) = shown(web, path)["silences"]
    until = f"Ana holds its messages back until {moment(held.ends_at, copied.now.date())}"
    for page in ("/fleet", "/incidents?state=silenced", "/targets/host:8000"):  # before a tick
        assert until in browser(web).get(page).text, page
    html = browser(web).get(path).text
    assert nobody in html  # the silence came later
    assert "by Ana: draining" in html and f"--expire</span> {held.id}</pre>" in html
    lost = send(browser(web), path, "end-silence", BEN, silence="ffff")
    assert "no silence ffff holds" in lost.text
    for _ in range(2):  # of two at once the second changes nothing
        sent = send(browser(web), path, "end-silence", BEN, silence=held.id)
        assert sent.headers["location"] == path
    assert "Was silenced" in browser(web).get(path).text
    with opened() as store:
        ended = [one.by for one in latest_actions(store, 9) if one.action == "end silence"]
        assert ended == ["Ben"]
        one = store.incident(copied.incident_id)
        before = one.started_at - MINUTE
        store.add_silence(silence_matchers(one), until=copied.now, by="Ben", at=before, comment="")
    assert "Nobody got it: a silence held it back." in browser(web).get(path).text


def test_messages_stand_whole_and_other_incidents_of_the_server_are_named(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    with opened() as store:
        one = store.incident(copied.incident_id)
        page = build_page(CASES["budget"].finding, one, "firing", copied.now)
        again = one.messages[0].model_copy(update={"event": "updated", "summary": "UPDATE worse"})
        one = with_values(one, page=page, messages=(*one.messages, again))
        other = with_values(one, id="b" * 12, pool=one.pool, rule="Other", alert="Other")
        early = one.started_at - timedelta(hours=4)
        over = fired("c", "other:1", pool=one.pool, at=early, resolved_at=early + MINUTE)
        store.commit_tick(TickRecord(copied.now, incidents=[one, other, over]))
    view, html = shown(web, f"/incidents/{one.id}"), browser(web).get(f"/incidents/{one.id}").text
    assert "UPDATE worse</summary>" in html and ", because prompts are longer</p>" in html
    assert [before.id for before in view["others"]["Before"]] == ["c" * 12]
    for at, before in ((early, []), (copied.now, ["c" * 12])):
        span = {"from": str(early - 2 * MINUTE), "at": str(at), "to": str(copied.now)}
        past = shown(web, "/targets/host:8000", **span)
        assert [before.id for before in past["before"]] == before
    assert [near.id for near in past["incidents"]] == ["b" * 12]
    assert [near.id for near in view["others"]["At the same time"]] == ["b" * 12]
    # the length that the page names, beside the wait in the queue of a full limit
    assert "mean wait in the queue" in view["plot"].title


def test_commands_name_the_moment_and_where_the_database_is(web: Web, firing: Recorded) -> None:
    there, path = replace(web, where=" -c /etc/dw.yaml"), f"/incidents/{firing.incident_id}"

    def commands() -> dict[str, str]:
        html = re.sub("</?span[^>]*>", "", browser(there).get(path).text)
        return dict(re.findall(r"<p>([^<]+)</p>\s*<pre class=.command[^>]+>([^<]+)</pre>", html))

    found = commands()
    made = found.pop("Explain it as of the page")
    assert re.fullmatch(r"driftwatch explain host:8000 --at [-\dT:]+Z -c /etc/dw.yaml", made)
    assert all(line.endswith(" -c /etc/dw.yaml") for line in found.values())
    assert {*found} == {"Explain it as of now", "Acknowledge it", "Silence it for 2 h"}
    send(browser(there), path, "acknowledge", ANA)
    assert "Acknowledge it" not in commands()


_TABLES = ("incidents", "silences", "baselines", "memory", "actions")
# every form that changes something of an incident
FORMS = (("acknowledge", {}), ("silence", {"comment": "deploy"}), ("note", {"mark": "useful"}),
         ("note", {"comment": "on it"}))  # fmt: skip


def _rows(recorded: Recorded) -> dict[str, list[Any]]:
    with sqlite3.connect(recorded.path) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in _TABLES
        }


@pytest.mark.parametrize(("form", "fields"), FORMS)
def test_what_cannot_be_kept_is_not_done(
    web: Web, copied: Recorded, form: str, fields: Mapping[str, str]
) -> None:
    with sqlite3.connect(copied.path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON actions BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    before, page = _rows(copied), f"/incidents/{copied.incident_id}"
    assert send(browser(web), page, form, ANA, **fields).status_code == 503
    assert _rows(copied) == before
    with sqlite3.connect(copied.path) as connection:
        connection.execute("DROP TRIGGER full")
    assert send(browser(web), page, form, ANA, **fields).status_code == 303
    assert len(_rows(copied)["actions"]) == 1


def test_what_is_wrong_in_a_form_is_named_and_what_was_typed_stays(
    web: Web, copied: Recorded
) -> None:
    page = f"/incidents/{copied.incident_id}"
    for hours, why in (("-1", "greater than 0"), ("1000", "less than or equal to 720")):
        wrong = send(browser(web), page, "silence", ANA, hours=hours, comment="for the <b>deploy")
        assert f"For hours: must be {why}" in wrong.text and f'value="{hours}"' in wrong.text
        assert "for the &lt;b&gt;deploy" in wrong.text and f'{page}/silence"' in wrong.text
    wrong = send(browser(web), page, "silence", ANA, hours="1,5", comment="deploy")
    assert "For hours: is no number; write it as 1.5" in wrong.text and "help:" not in wrong.text
    wrong = browser(web).get("/targets/host:8000?from=yesterday")
    assert "From: is no time; write it as 2026-11-10T08:04Z" in wrong.text
    assert 'href="/targets/host:8000"' in wrong.text


def test_notes_and_marks_are_of_one_person(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    page = f"/incidents/{copied.incident_id}"
    for who, mark in ((ANA, "useful"), (BEN, "not useful")):
        for _ in range(2):
            note = send(browser(web), page, "note", who, comment="seen,\r\nordered")
            assert note.status_code == 303
        assert send(browser(web), page, "note", who, mark=mark).headers["location"] == page
    html = browser(web).get(page).text
    assert (
        "UTC: seen,\nordered</dd>" in html and "not useful by Ben 08:30 UTC (before: useful" in html
    )
    later = replace(web, clock=ManualClock(copied.now + timedelta(days=1)))
    assert "not useful by Ben 2026-11-21 08:30 UTC" in browser(later).get(page).text
    send(browser(later), page, "acknowledge", ANA)
    assert "acknowledged it</b> 2026-11-22 08:30 UTC" in browser(later).get(page).text
    with opened() as store:
        kept = store.marks([copied.incident_id])[copied.incident_id]
        assert (kept.mark, kept.by) == ("not useful", "Ben")
        assert len(latest_actions(store, 20)) == 5
