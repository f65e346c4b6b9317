"""A target's page: answer, signals on one axis, lengths, limits, ranges."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
from page_cases import CASES
from web_cases import END, Recorded, browser, fleet_database, shown, web_at

from driftwatch.pipeline.plan import Pool
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store
from driftwatch.web.app import Web
from driftwatch.web.incidents import page_lines
from driftwatch.web.page import pool_path, target_path
from driftwatch.web.plots import marks, signal_plot, signal_title
from driftwatch.web.signals import COLUMNS, Change, changes, gaps, stretches
from driftwatch.web.target import TargetQuery

PATH = "/targets/host:8000"
T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_target_has_the_answer_of_explain_and_six_plots(web: Web, firing: Recorded) -> None:
    html = unescape(browser(web).get(PATH).text)
    view = shown(web, PATH)
    assert (view["state"], view["no_data"], view["incident"].id) == (
        "firing", None, firing.incident_id,
    )  # fmt: skip
    assert "<b>max_num_seqs full</b>" in html and "driftwatch explain host:8000" in html
    assert all("no baseline to compare with" in one.title for one in view["lengths"])
    assert view["signals"]["without_usual"] == "no baseline is in force"
    assert [one.id for one in view["signals"]["incidents"]] == [firing.incident_id]
    assert html.count('class="unit">') == 7
    assert " min of unknown speed: " in html and 'aria-current="true">3 h' in html
    assert view["until"] - view["since"] < timedelta(hours=3)  # from the first data on


def test_a_moment_in_the_past_is_answered_as_of_then(web: Web, firing: Recorded) -> None:
    at = firing.now.replace(second=0, microsecond=0)
    moment = {"from": f"{at - timedelta(hours=1):%Y-%m-%dT%H:%MZ}", "at": f"{at:%Y-%m-%dT%H:%MZ}"}
    view = shown(web, PATH, **moment)
    with Store.open(firing.path, migrate=False) as store:
        said = store.incident(firing.incident_id).messages[-1]
    assert (view["headline"], view["state"], view["incident"].id) == (
        f"At {at:%H:%M} UTC: {said.summary}", None, firing.incident_id,
    )  # fmt: skip
    assert [text for _, text in view["lines"]] == [
        text for _, text in page_lines(said.lines, firing.now.date())
    ]
    assert f"--at {moment['at']}" in view["explain"]
    centred = TargetQuery(at=T0).range(T0 + timedelta(days=1))
    assert [one - T0 for one in centred] == [-90 * MINUTE, 90 * MINUTE]
    gap = {"at": f"{view['since'] - timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
    assert "Unknown: not scraped until " in browser(web).get(PATH, params=gap).text
    late = {"to": moment["at"], "at": f"{at + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
    assert "at lies outside the range" in browser(web).get(PATH, params=late).text


def test_a_range_is_in_the_address_and_one_without_data_says_so(web: Web) -> None:
    span = {"from": "2001-01-01T00:00", "to": "2001-01-01T03:00Z"}
    view = shown(web, PATH, **span)
    assert (view["signals"], view["lengths"], view["state"]) == (None, [], None)
    html = browser(web).get(PATH, params=span).text
    assert "No scrape of it from 2001-01-01 00:00 UTC to 2001-01-01 03:00 UTC" in html
    assert "its minutes reach from 2026-11-21" in html
    for query in ("from=2026-01-02&to=2026-01-01", "from=2020-01-01&to=2026-01-01", "since=2026"):
        assert browser(web).get(f"{PATH}?{query}").status_code == 400, query


def test_a_name_with_any_character_has_a_page(tmp_path: Path) -> None:
    names = ["a\nb:8000", "a\tb/\x7f?#:8000"]
    rows = [{"instance": name, "pool": "new\nline"} for name in names]
    fleet_database(tmp_path / "names.db", rows)
    plan = replace(plan_of_rules(()), pools=(Pool("new\nline"),))
    client = browser(web_at(tmp_path / "names.db", END, tmp_path, plan=plan))
    listed = client.get("/fleet?q=8000").text
    for name in names:
        assert f'href="{target_path(name)}"' in listed
        assert client.get(target_path(name)).status_code == 200
    assert client.get(pool_path("new\nline")).status_code == 200


def rows(count: int, **columns: Any) -> pl.DataFrame:
    """So many minutes after T0; a list is a column, anything else its every value."""
    plain = dict.fromkeys(COLUMNS) | {
        "end": [T0 + (at + 1) * MINUTE for at in range(count)],
        "scrapes": 4.0,
        "seconds": 60.0,
        "duration_seconds": 60.0,
        "gpu_count": 2.0,
        "forward_passes": 100.0,
        "generation_tokens_total": 6000.0,
        "itl_seconds_count": 1900.0,
        "ttft_seconds_count": 100.0,
        "instance": "a:1",
        "engine": "0",
        **columns,
    }
    full = {n: v if isinstance(v, list) else [v] * count for n, v in plain.items()}
    schema = {
        **{name: STORED_SCHEMA[name] for name in COLUMNS},
        "seconds": pl.Float64,
        "instance": pl.String,
        "engine": pl.String,
    }
    return pl.DataFrame(full, schema=schema)


def test_a_span_without_a_row_is_unknown_and_means_are_of_sums() -> None:
    minutes = rows(6, forward_passes=[100.0, 300.0, 0.0, None, 100.0, 100.0])
    minutes = minutes.filter(pl.col("end") != T0 + 6 * MINUTE)
    table = stretches(minutes, T0, T0 + 8 * MINUTE, 120).to_dicts()
    assert [row["end"] for row in table] == [T0 + at * MINUTE for at in (2, 4, 6, 8)]
    # 4,000 tokens in 400 steps; of the next two minutes one has no step and one is unknown
    assert [row["requests_per_forward_pass"] for row in table] == [10.0, None, 20.0, None]
    assert table[0]["tokens_per_second_per_gpu"] == 50.0
    assert table[0]["prompt_tokens_mean"] is None


def test_a_hang_is_zero_and_has_no_speed() -> None:
    silent = [0.0, 15.0, 75.0, 135.0]
    tokens = [6000.0, 1200.0, 0.0, 0.0]
    minutes = rows(4, seconds_since_last_token=silent, generation_tokens_total=tokens,
                   speed_at_equal_load_ratio=1.0)  # fmt: skip
    table = stretches(minutes, T0, T0 + 4 * MINUTE, 60)
    assert table["tokens_per_second_per_gpu"].to_list() == [50.0, 10.0, 0.0, 0.0]
    assert table["speed_at_equal_load_ratio"].to_list() == [1.0, 1.0, None, None]
    assert gaps(minutes) == ["2 min hung"]
    evidence = {"tokens_per_second_per_gpu": 20.0, "seconds_since_last_token": 135.0}
    hung = replace(CASES["budget"].finding, evidence=evidence)
    title = signal_title(hung, T0 + 4 * MINUTE, T0.date())
    assert title == "Hung since 12:01 UTC: no tokens up to 12:04 UTC"


def test_what_changed_is_named_with_its_numbers() -> None:
    minutes = rows(
        4,
        restarted=[None, True, False, False],
        configuration_changed=[False, True, False, True],
        max_num_seqs=[256.0, 512.0, 512.0, None],
        max_num_seqs_inferred=[False] * 4,
        # steps that exceed the configured budget: it is unknown
        max_num_batched_tokens=[512.0, None, None, None],
        step_tokens_max_of_process=[500.0, 1000.0, 1000.0, 1000.0],
        # a start finds a little more or less memory
        kv_cache_tokens=[448_512.0, 448_416.0, 448_416.0, 400_000.0],
        release_changed=[False, False, True, False],
    )
    other = minutes.with_columns(instance=pl.lit("b:1"), release_changed=pl.lit(False))
    budget = "max_num_batched_tokens 512 → 952 or more"
    restart = f"restart, max_num_seqs 256 → 512, {budget}"
    cache = "KV cache 448,416 → 400,000 tokens"
    found = changes(pl.concat([minutes, other]))
    assert [((one.at - T0) // MINUTE, one.server, one.what) for one in found] == [
        (1, "a:1", restart), (1, "b:1", restart), (2, "a:1", "release changed"),
        (3, "a:1", cache), (3, "b:1", cache),
    ]  # fmt: skip


def test_the_plot_of_a_busy_range_is_small_and_its_events_are_text() -> None:
    minutes, span = rows(240), (T0, T0 + 240 * MINUTE)
    restarts = [Change(T0 + at * MINUTE, "a", "restart, <b>") for at in range(1, 240, 6)]
    bands = {"requests_per_forward_pass": (90.0, 99.0)}
    plot, unknown = signal_plot("t", minutes, span, bands, marks(span, [], restarts))
    drawn, lengths = str(plot.svg), "prompts and generations"
    assert unknown == ["requests/s", "wait", lengths]
    assert len(drawn) <= 40_000 and drawn.count('class="band c4"') == 2  # and the legend's
    assert "<b>" not in drawn and "restart, &lt;b&gt;" in drawn
