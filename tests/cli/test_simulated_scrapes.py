"""What ``simulate --scrapes`` writes is a recording like any other."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typed_words import call

from driftwatch.collect.recordings import open_recording


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    requests = folder / "r.jsonl"
    requests.write_text(
        "".join(
            json.dumps({"arrival_seconds": i, "prompt_tokens": 300, "generation_tokens": 60}) + "\n"
            for i in range(300)
        )
    )
    result = call(
        *("simulate", "run", "--requests", str(requests), "--step-time", "0.01,2e-5,1e-4,1e-8"),
        *("--max-num-seqs", "32", "--max-num-batched-tokens", "2048", "--num-gpu-blocks", "4000"),
        *("--scrapes", str(folder / "s.jsonl")),
    )
    assert result.exit_code == 0, result.output
    return folder / "s.jsonl"


def test_its_rows_are_scrapes(scrapes: Path) -> None:
    source = open_recording(scrapes)
    collected = source.collect(*source.span())
    assert collected.problems == ()
    rows = [json.loads(line) for line in scrapes.read_text().splitlines()]
    found = collected.scrapes
    assert found["ok"].all()
    for column, name in (
        ("running_requests", "running"),
        ("generation_tokens_total", "generation_tokens"),
        ("iteration_tokens_sum", "iteration_tokens_sum"),
        ("itl_seconds_count", "itl_seconds_count"),
        ("finished_requests_total", "request_success_total"),
        ("ttft_seconds_count", "time_to_first_token_seconds_count"),
    ):
        assert found[column].to_list() == [float(row[name]) for row in rows], column


def test_replay_reads_them(scrapes: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "e.parquet"
    result = call("replay", str(scrapes), "--max-num-seqs", "32", "--evidence", str(evidence))
    assert result.exit_code == 0, result.output
    tokens = pl.read_parquet(evidence)["generation_tokens_per_second"].drop_nulls()
    assert tokens.median() == pytest.approx(60, rel=0.02)


def test_a_cache_of_unknown_size_has_no_usage_on_the_page(scrapes: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in scrapes.read_text().splitlines()]
    unknown = tmp_path / "s.jsonl"
    unknown.write_text(
        "".join(json.dumps({**row, "kv_cache_usage_ratio": None}) + "\n" for row in rows)
    )
    source = open_recording(unknown)
    collected = source.collect(*source.span())
    assert collected.problems == ()
    assert collected.scrapes["kv_cache_usage_ratio"].null_count() == len(rows)


def test_a_row_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "s.jsonl"
    broken.write_text('{"time_seconds":15.0,"running":0,"steps_all":3}\n')
    result = call("replay", str(broken))
    assert result.exit_code == 2
    assert "not a scrape of driftwatch simulate: KeyError('kv_cache_usage_ratio')" in result.output
