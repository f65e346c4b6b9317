"""A week of a recorded fleet, from the scrapes to the page, against what was really injected."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from filled import fill
from report_cases import FLEET_WEEK, SLO, SLOW_FROM, SLOW_TO, WEEK, cell, cells, incident, page

from driftwatch.cli.main import cli
from driftwatch.collect.recordings import open_recording
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict
from driftwatch.model import Slo
from driftwatch.pipeline.plan import Plan
from driftwatch.report.document import week_document
from driftwatch.report.drift import cost_text
from driftwatch.report.forms import as_html, as_json_text
from driftwatch.report.material import Material
from driftwatch.report.text import top_screen
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.report_material import gather, rules_of
from driftwatch.store.baselines import PROPOSALS
from driftwatch.store.store import Store


@pytest.fixture(scope="module")
def document(fleet_database: Path, fleet_plan: Plan) -> dict[str, Any]:
    with Store.open(fleet_database) as store:
        return week_document(gather(store, fleet_plan, FLEET_WEEK))


def test_what_was_injected_is_what_is_told(document: dict[str, Any]) -> None:
    (row,) = document["drift"]
    assert (row["subject"], row["family"]) == ("chat-8b-1", "speed")
    lost = (SLOW_TO - SLOW_FROM) * (1 - 1 / 1.3333)  # one GPU
    assert row["cost"]["gpu_hours_lost"] == pytest.approx(lost, rel=0.2)
    speed = int(row["result"].removeprefix("speed ").removesuffix(" again").removesuffix(" %"))
    assert 93 < speed < 107
    assert document["pages"]["pages"] == 1
    assert document["fleet"] == {"pools": 1, "servers": 2}


@pytest.mark.parametrize(("said", "count"), [("not useful", 1), ("useful", 0)])
def test_what_somebody_said_of_a_page_is_counted(
    fleet_store: Store, fleet_plan: Plan, said: str, count: int
) -> None:
    (fired,) = [one for one in fleet_store.incidents(limit=100) if one.severity == "page"]
    fleet_store.mark(fired.id, said, by="Ana", at=FLEET_WEEK.end, because="a load test")
    pages = week_document(gather(fleet_store, fleet_plan, FLEET_WEEK))["pages"]
    assert (pages["pages"], pages["marked"], pages["marked_not_useful"]) == (1, 1, count)


def test_counts_are_those_of_the_stored_minutes(
    document: dict[str, Any], fleet_database: Path
) -> None:
    with Store.open(fleet_database) as store:
        rows = store.past(FLEET_WEEK.start, FLEET_WEEK.end)
    pool = document["pools"][0]
    assert pool["prompt_tokens"]["n"] == rows["prompt_tokens_count"].sum()
    assert pool["prompt_tokens"]["mean"] == pytest.approx(
        rows["prompt_tokens_sum"].sum() / rows["prompt_tokens_count"].sum()
    )
    # both targets are bucket edges of vLLM's, so the share of each is exact
    over = {"ttft": 0.0, "tpot": 0.0}
    for name, target in (("ttft", SLO.ttft_seconds), ("tpot", SLO.tpot_seconds)):
        columns = rows.select(f"{name}_seconds_buckets", f"{name}_seconds_edges").drop_nulls()
        for buckets, edges in columns.iter_rows():
            over[name] += buckets[-1] - buckets[edges.index(target)]
    assert document["cost"]["requests_over_target_low"] == pytest.approx(max(over.values()))
    assert document["cost"]["requests_over_target_high"] == pytest.approx(sum(over.values()))
    assert document["blind"]["server_minutes"] == pytest.approx(rows.height)


@pytest.mark.slow
def test_another_process_makes_the_same_bytes(fleet_database: Path, tmp_path: Path) -> None:
    with Store.open(fleet_database) as store:
        here = week_document(gather(store, plan_of_rules(()), FLEET_WEEK))
    asked = ["report", "--week", FLEET_WEEK.name, "--json", "--html", "week.html"]
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", *asked, "--db", str(fleet_database)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "2", "POLARS_MAX_THREADS": "2"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode() == as_json_text(here)
    html = (tmp_path / "week.html").read_text(encoding="utf-8")
    assert html == as_html(here)
    assert len(html.encode()) < 1_000_000


def test_packed_and_rolled_up_minutes_tell_the_same_week(
    document: dict[str, Any], fleet_store: Store, fleet_plan: Plan
) -> None:
    fleet_store.pack_minutes(FLEET_WEEK.end)
    assert (fleet_store.past(FLEET_WEEK.start, FLEET_WEEK.end)["seconds"] == 600).all()
    again = week_document(gather(fleet_store, fleet_plan, FLEET_WEEK))
    assert again["pools"][0]["prompt_tokens"]["n"] == document["pools"][0]["prompt_tokens"]["n"]
    assert again["cost"]["requests_over_target_low"] == pytest.approx(
        document["cost"]["requests_over_target_low"], rel=1e-3
    )
    assert again["drift"][0]["cost"]["gpu_hours_lost"] == pytest.approx(
        document["drift"][0]["cost"]["gpu_hours_lost"], rel=0.15
    )


def test_a_proposal_that_pin_refuses_waits_for_nobody(fleet_store: Store, fleet_plan: Plan) -> None:
    def waiting() -> list[str]:
        told = week_document(gather(fleet_store, fleet_plan, FLEET_WEEK))["for_you"]
        return [one["text"] for one in told if "baseline accept 3c1f9a02" in one["text"]]

    proposal = {"id": "3c1f9a02", "name": "chat-8b-0:8000"}
    since, until = FLEET_WEEK.start.isoformat(), FLEET_WEEK.end.isoformat()
    proposal |= {"since": since, "until": until}
    fleet_store.remember({PROPOSALS: json.dumps([proposal]).encode()})
    assert len(waiting()) == 1
    refused = {**proposal, "lacking": "3 of 20 minutes of data"}
    fleet_store.remember({PROPOSALS: json.dumps([refused]).encode()})
    assert waiting() == []


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action"):
                self.addresses.append(value or "")


NASTY = "<script>alert(1)</script>|`*\"'&$x_y$"


def _nasty(pools: int = 1) -> Material:
    rows = []
    for number in range(pools):
        name = NASTY if number == 0 else f"{NASTY}{number}"
        rows += [
            cell(
                pool=name,
                instance=f"s{number}:8000",
                end=WEEK.start.replace(hour=1 + at),
                generation_tokens_total=6000.0 * (1 + at),
                duration_seconds=600.0,
                forward_passes=1000.0 * 2.0**at,
                itl_seconds_count=1000.0 * 4.0**at,
                ttft_seconds_count=100.0,
                prompt_tokens_sum=1e5,
                prompt_tokens_count=100.0,
            )
            for at in range(4)
        ]
    firing = incident(
        target={"pool": NASTY, "instance": "s0:8000", "engine": "0"},
        alert="Custom",
        page=page(alert="Custom", annotations={"summary": NASTY}, summary=NASTY),
        acknowledged_by=NASTY,
    )
    return Material(
        week=WEEK,
        until=WEEK.end,
        cells=cells(*rows),
        incidents=[firing],
        slos={NASTY: Slo(1.0)},
    )


def test_names_are_only_ever_text() -> None:
    document = week_document(_nasty())
    html = as_html(document)
    found = _Tags()
    found.feed(html)
    assert "script" not in found.tags
    assert "svg" in found.tags and "table" in found.tags
    # nothing is loaded from anywhere
    assert all(address.startswith("#") for address in found.addresses)
    assert "&lt;script&gt;" in html and NASTY not in html
    assert re.search(r"default-src 'none'", html)
    assert len(found.ids) == len(set(found.ids))


def test_a_page_of_many_pools_stays_under_a_megabyte() -> None:
    html = as_html(week_document(_nasty(pools=60)))
    assert 50_000 < len(html.encode()) <= 1_000_000
    assert "52 pools not drawn" in html


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_lines_stand_out_from_white() -> None:
    style = re.search(r"<style>(.*?)</style>", as_html(week_document(_nasty())), re.DOTALL)
    assert style is not None
    colours = set(re.findall(r"[{;](?:color|--text|--c\d):(#[0-9a-f]{6})", style[1]))
    assert len(colours) > 6
    for colour in colours:
        assert 1.05 / (_luminance(colour) + 0.05) >= 4.5, colour


def test_the_drawn_week_shows_when_a_server_was_slower(document: dict[str, Any]) -> None:
    (timeline,) = document["timelines"]
    assert len(timeline["speed_lowest_ratio"]) == len(timeline["tokens_per_second"]) == 336
    hour = fleet_hour(SLOW_FROM), fleet_hour(SLOW_TO)
    slow = [v for v in timeline["speed_lowest_ratio"][hour[0] + 2 : hour[1]] if v is not None]
    assert slow and max(slow) < 0.9
    assert timeline["tokens_per_second"][0] is None, "nothing was recorded, which is no 0"
    (span,) = timeline["incidents"]
    assert span["subject"] == "chat-8b-1"
    html = as_html(document)
    assert html.count('<svg class="plot"') >= 3
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert titles[0].startswith("chat-8b: lowest speed at equal load 7")
    assert "Mon 2 Mar 2" in titles[0]
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert len(drawing) <= 10_000


def fleet_hour(hours: float) -> int:
    """Half hour of the recording's week."""
    return round(2 * (14 + hours))


def test_the_hash_changes_with_a_rule_and_not_with_its_file(fleet_plan: Plan) -> None:
    first = rules_of(fleet_plan)
    moved = replace(
        fleet_plan,
        rules=tuple(replace(r, path="/elsewhere.yaml", line=9) for r in fleet_plan.rules),
    )
    assert rules_of(moved) == first
    rule = fleet_plan.rules[0]
    longer = replace(rule, for_seconds=rule.for_seconds + 60)
    changed = replace(fleet_plan, rules=(longer, *fleet_plan.rules[1:]))
    assert rules_of(changed) != first


def test_the_top_screen_of_the_recorded_week(document: dict[str, Any]) -> None:
    lines = top_screen(document)
    assert lines[0] == "Week 10, Mon 2 – Sun 8 Mar 2026 UTC. 1 pool, 2 servers"
    assert max(map(len, lines)) <= 80
    assert lines[1] == "data from Mon 2 Mar 14:00 to Tue 3 Mar 01:59 UTC only"
    assert lines[2] == "FOR YOU  nothing"
    assert any(line.startswith("chat-8b-1: 2") and "GPU-hours" in line for line in lines)


def _baseline() -> Baseline:
    """Eight hours of the recording as the pool's baseline."""
    row = {
        "kind": "baseline",
        "since": FLEET_WEEK.start,
        "until": FLEET_WEEK.start + timedelta(hours=8),
        "reference_ttft_seconds_p95": 0.05,
        "reference_prompt_tokens_mean": 600.0,
    }
    return Baseline(
        id="abcd1234",
        scope="pool",
        pool="chat-8b",
        since=FLEET_WEEK.start,
        until=FLEET_WEEK.start + timedelta(hours=8),
        accepted_by="Ana",
        accepted_at=FLEET_WEEK.start + timedelta(hours=9),
        why="quiet",
        reference=row,
    )


def test_without_targets_twice_the_baselines_p95_marked_derived(
    fleet_store: Store, fleet_plan: Plan
) -> None:
    unsaid = replace(fleet_plan, pools=(replace(fleet_plan.pools[0], slo=Slo()),))
    without = week_document(gather(fleet_store, unsaid, FLEET_WEEK))
    assert without["cost"]["requests_over_target_reason"] == "no SLO"
    baseline = _baseline()
    fleet_store.add_baselines([baseline])
    document = week_document(gather(fleet_store, unsaid, FLEET_WEEK))
    pool = document["pools"][0]
    assert pool["slo"] == {
        "ttft_seconds": 0.1,
        "tpot_seconds": None,
        "share": 0.95,
        "derived": True,
    }
    assert document["cost"]["targets_derived"]
    assert document["cost"]["requests_over_target_low"] is not None
    assert pool["tuned_for"] == "baseline 2026-03-02 8 h"
    assert pool["prompt_tokens"]["ratio"] == pytest.approx(pool["prompt_tokens"]["mean"] / 600)
    assert "missed twice the baseline's p95" in cost_text({**document["cost"], "kind": "requests"})


def test_baselines_that_a_command_names_hold_in_all_of_its_recording(
    fleet_database: Path, fleet_plan: Plan, tmp_path: Path
) -> None:
    """Whenever they were accepted: the recording may be older than its baseline."""
    accepted = {"accepted_at": FLEET_WEEK.end + timedelta(days=30)}
    late = Baselines((_baseline().model_copy(update=accepted),))
    recording = open_recording(fleet_database.parent / "fleet")
    began = recording.span()[0]
    with Store.open(tmp_path / "own.db") as store:
        span = began, began + timedelta(minutes=15)
        fill(store, [recording], span, fleet_plan, baselines=late)
        material = gather(store, fleet_plan, FLEET_WEEK, until=span[1])
    (pool,) = week_document(material)["pools"]
    assert pool["tuned_for"] == "baseline 2026-03-02 8 h"
    assert pool["prompt_tokens"]["ratio"] is not None


def test_a_time_of_another_millennium_ends_with_what_to_do(
    fleet_database: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(fleet_database, copy)
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute(
            "UPDATE minute_batches SET until = '5195' || substr(until, 5) "
            "WHERE id = (SELECT max(id) FROM minute_batches)"
        )
    ran = CliRunner().invoke(cli, ["report", "--db", str(copy)])
    assert isinstance(ran.exception, NoVerdict)
    assert ran.exception.message.startswith("the minutes reach from 2026-03-02 to 5195-03-0")
    assert "--week 2026-W47" in (ran.exception.help_text or "")
