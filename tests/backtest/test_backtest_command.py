"""``driftwatch rules backtest`` as it is typed, of recordings and of the database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from filled import fill

from driftwatch.backtest.outcome import History
from driftwatch.cli.history import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.installation import shipped
from driftwatch.store.store import Store

Run = Callable[..., tuple[int, str, str]]
Golden = Callable[[str, str], None]


@pytest.fixture
def words(shared_data: Path) -> list[object]:
    recording = shared_data / "vllm-0.32" / "run_cap"
    return ["--recording", recording, "--max-num-seqs", 8]


def other_rules(held: str) -> Path:
    """The shipped rules with another `for`, in ./other."""
    shutil.copytree(shipped("rules"), "other")
    limits = Path("other/batch-limits.yaml")
    text = limits.read_text().replace("        for: 0s # the 10", f"        for: {held} # 10")
    limits.write_text(text)
    return Path("other")


@pytest.fixture
def other(run: Run) -> Path:
    return other_rules("2m")


def test_the_screen(run: Run, words: list[object], golden: Golden) -> None:
    code, out, err = run(*words, terminal=True)
    assert (code, err) == (0, "")
    golden("backtest/screen.txt", out)
    assert run(*words, terminal=True) == (code, out, err)  # to the byte


def test_the_list(run: Run, words: list[object], golden: Golden) -> None:
    listed = [*words, "--list", "--notices"]
    golden("backtest/list.txt", run(*listed, terminal=True)[1])
    rows = [line.split("\t") for line in run(*listed)[1].splitlines()]
    assert any(len(row) == 8 and row[6] == "BatchLimitBinding" for row in rows)


def test_against_a_folder(run: Run, words: list[object], other: Path, golden: Golden) -> None:
    code, out, _ = run(other, *words, "--against", shipped("rules"), "--list", terminal=True)
    assert code == 0
    golden("backtest/against.txt", out)


def test_a_range_before_any_data(run: Run, words: list[object]) -> None:
    code, out, err = run(*words, "--from", "2020-01-01T00:00Z", "--to", "2020-01-01T06:00Z")
    assert code == 4
    assert "no usable scrape between 2020-01-01 00:00:00 and 2020-01-01 06:00:00" in out
    assert "help: scrapes reach from " in err


def test_minutes_without_data_do_not_thin_what_was_counted(run: Run, words: list[object]) -> None:
    """A page in half an hour is no page in a day, and neither is a rate."""
    wide = ("--from", "2026-11-21T08:18Z", "--to", "2026-11-22T08:18Z")
    code, out, _ = run(*words, *wide)
    assert code == 0
    assert "BatchLimitBinding\t1\n" in out
    assert "1 page, 0 tickets in 30 min on 1 server" in out


@pytest.mark.parametrize(
    ("pages", "days", "rate"),
    [(0, 30, (0.0, 0.0, 3.74)), (3, 30, (3.04, 0.628, 8.89)), (1, 3, (10.1, 0.257, 56.5)),
     (1, 2.9, None)],
)  # fmt: skip
def test_a_rate_needs_three_server_days_and_has_an_interval(
    pages: int, days: float, rate: tuple[float, ...] | None
) -> None:
    minutes = round(days * 24 * 60)
    since = datetime(2026, 11, 1, tzinfo=UTC)
    history = History(since, since + timedelta(days=days), 1, minutes, minutes)
    assert history.rate(pages) == (rate and pytest.approx(rate, rel=0.01))


SPAN = ("--from", "2026-11-21T08:00Z", "--to", "2026-11-21T09:00Z")
OF_DATABASE = ("--max-num-seqs", 8, *SPAN)


@pytest.fixture
def database(run: Run, shared_data: Path) -> None:
    """./driftwatch.db with the minutes of a real server and the incident that it had, marked."""
    source = open_recording(shared_data / "vllm-0.32" / "run_cap")
    plan = replace(plan_from(None, max_num_seqs=8), simulations=0)
    with Store.open(Path("driftwatch.db")) as store:
        fill(store, [source], source.span(), plan)
        (page,) = [one.id for one in store.incidents() if one.rule == "BatchLimitBinding"]
        store.mark(page, "useful", by="ana", at=source.span()[1])


@pytest.mark.usefixtures("database")
def test_marks_of_the_database_score_the_pages(run: Run) -> None:
    code, out, _ = run(*OF_DATABASE, "--json")
    document = json.loads(out)
    (page,) = document["pages"]
    assert code == 0
    assert (page["rule"], page["leaf"]) == ("BatchLimitBinding", "concurrency_cap_binding")
    score = document["marks"]
    assert (score["useful"], score["not_useful"], score["missed"]) == (1, 0, [])
    code, out, err = run(other_rules("30m"), *OF_DATABASE, "--against", shipped("rules"))
    assert code == 0 and "note: " in err
    assert "1 gone, 0 new, 1 that was marked useful lost (--list" in out
    assert "marks: 0 of 1 useful page sent\n" in out
    assert " missed: BatchLimitBinding host:8000 at 2026-11-21 08:30 UTC\n" in out
    code, out, err = run("--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z")
    assert code == 4 and out.startswith("NO VERDICT: ")
    assert "help: minutes reach from 2026-11-21 08:" in err
