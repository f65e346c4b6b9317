"""Backtests of the database: its minutes, and what on-call marked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from filled import fill

from driftwatch.cli.options import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.installation import shipped
from driftwatch.store import Store

Run = Callable[..., tuple[int, str, str]]
SPAN = ("--from", "2026-11-21T08:00Z", "--to", "2026-11-21T09:00Z")
WORDS = ("--max-num-seqs", 8, *SPAN)


@pytest.fixture
def database(run: Run, shared_data: Path) -> Path:
    """./driftwatch.db with the minutes of a real server and the incident that it had, marked."""
    source = open_recording(shared_data / "vllm-0.32" / "run_cap")
    plan = replace(plan_from(None, max_num_seqs=8), simulations=0)
    with Store.open(Path("driftwatch.db")) as store:
        fill(store, [source], source.span(), plan)
        (page,) = [one.id for one in store.incidents() if one.rule == "BatchLimitBinding"]
        store.mark(page, "useful", by="ana", at=source.span()[1])
    return Path("driftwatch.db")


def test_marks_score_the_pages(run: Run, database: Path) -> None:
    code, out, _ = run(*WORDS, "--json")
    document = json.loads(out)
    assert code == 0
    assert [one["rule"] for one in document["pages"]] == ["BatchLimitBinding"]
    assert document["pages"][0]["leaf"] == "concurrency_cap_binding"
    score = document["marks"]
    assert (score["useful"], score["not_useful"], score["missed"]) == (1, 0, [])


def test_a_useful_page_that_is_lost_is_named(run: Run, database: Path) -> None:
    shutil.copytree(shipped("rules"), "other")
    limits = Path("other/batch-limits.yaml")
    limits.write_text(limits.read_text().replace("        for: 0s # the 10", "        for: 30m #"))
    code, out, err = run("other", *WORDS, "--against", shipped("rules"))
    assert code == 0
    assert "1 gone, 0 new, 1 that was marked useful lost (--list" in out
    assert "marks: 0 of 1 useful page sent\n" in out
    assert " missed: BatchLimitBinding host:8000 at 2026-11-21 08:30 UTC\n" in out
    assert "note: " in err


def test_a_database_without_a_minute_of_the_span(run: Run, database: Path) -> None:
    code, out, err = run("--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z")
    assert code == 4
    assert out.startswith("NO VERDICT: ")
    assert "help: minutes reach from 2026-11-21 08:" in err
