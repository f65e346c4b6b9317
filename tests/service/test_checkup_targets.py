"""doctor on many targets: troubles are told per pool, and numbers that cannot be are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from checkup_cases import (
    COMPLETE,
    ago,
    page_text,
    plan_with,
    scrapes_of,
    targets_of,
    trouble,
)

from driftwatch.doctor.checks import Check
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.targets import counting
from driftwatch.model import Serving, Setting


def _found(scrapes: pl.DataFrame, *instances: str) -> list[Check]:
    plan = plan_with()
    return trouble(checkup(scrapes, targets_of(plan, *instances), plan, Inputs()))


@pytest.mark.slow
def test_one_trouble_of_many_targets_is_one_check(shared_data: Path) -> None:
    bad = page_text(shared_data, r"^vllm:num_requests_running\{.*\n")
    instances = [f"host-{n:04d}:8000" for n in range(2000)]
    one = scrapes_of({"x": bad})
    scrapes = pl.concat([one.with_columns(instance=pl.lit(i)) for i in instances])
    (check,) = _found(scrapes, *instances)
    assert check.where == "chat"
    assert check.what == (
        "2000 of 2000 (host-0000:8000, host-0001:8000, host-0002:8000, …): "
        "vllm:num_requests_running: not on the page"
    )
    assert "EngineStuck" in check.disables


_KV = r"^(vllm:kv_cache_usage_perc\{.*\}) .*$"
_EDGE = r'^(vllm:%s_bucket\{.*le=")(\d+)\.0(".*)$'


@pytest.mark.parametrize(
    ("change", "by", "words"),
    [
        (_KV, r"\1 43.5", "vllm:kv_cache_usage_perc is 43.5: not a ratio"),
        (_EDGE % "time_to_first_token_seconds", r"\g<1>\g<2>000.0\3", "milliseconds?"),
        (_EDGE % "request_queue_time_seconds", r"\g<1>\g<2>000.0\3", "milliseconds?"),
    ],
)
def test_numbers_that_cannot_be_what_their_names_say(
    shared_data: Path, change: str, by: str, words: str
) -> None:
    found = _found(scrapes_of({"a:1": page_text(shared_data, change, by)}), "a:1")
    (check,) = [c for c in found if c.status == "WRONG"]
    assert words in check.what


def test_a_mean_between_two_tokens_of_milliseconds(shared_data: Path) -> None:
    scrapes = scrapes_of({"a:1": page_text(shared_data)})
    assert _found(scrapes, "a:1") == []
    scrapes = scrapes.with_columns(itl_seconds_sum=pl.col("itl_seconds_count") * 12.0)
    (check,) = [c for c in _found(scrapes, "a:1") if c.status == "WRONG"]
    assert "has a mean of 12 s between two tokens: milliseconds?" in check.what


def _twice(shared_data: Path, **changes: pl.Expr) -> pl.DataFrame:
    first = scrapes_of({"a:1": page_text(shared_data)}, ago(15))
    return pl.concat([first, scrapes_of({"a:1": page_text(shared_data)}).with_columns(**changes)])


def test_a_counter_that_falls_without_a_restart(shared_data: Path) -> None:
    less = pl.col("generation_tokens_total") - 1
    fallen = _twice(shared_data, generation_tokens_total=less)
    (check,) = _found(fallen, "a:1")
    assert check.status == "WRONG"
    assert "vllm:generation_tokens_total falls though the server did not start again" in check.what
    later = pl.col("process_start_time_seconds") + 60
    restarted = _twice(
        shared_data, generation_tokens_total=pl.lit(0.0), process_start_time_seconds=later
    )
    assert _found(restarted, "a:1") == []


def test_a_start_time_that_wanders_by_less_than_a_second_is_one_server(shared_data: Path) -> None:
    start = pl.col("process_start_time_seconds")
    assert _found(_twice(shared_data, process_start_time_seconds=start - 0.5), "a:1") == []
    (check,) = _found(_twice(shared_data, process_start_time_seconds=start - 2), "a:1")
    assert "several servers answer at this address" in check.what


def test_what_the_page_contradicts_is_wrong(shared_data: Path) -> None:
    serving = replace(COMPLETE.serving, kv_cache_tokens=Setting(1000, "config", "kv_cache_tokens"))
    plan = plan_with(replace(COMPLETE, serving=serving))
    scrapes = scrapes_of({"a:1": page_text(shared_data), "b:1": page_text(shared_data)})
    told = [
        Serving(max_num_seqs=Setting(64, "config", "max_num_seqs")),
        Serving(max_num_seqs=Setting(8, "startup log", "x.log:3")),
    ]
    found = checkup(scrapes, targets_of(plan, "a:1", "b:1"), plan, Inputs(places={"chat": told}))
    first, second = trouble(found)
    assert not found.ready
    assert first.what == ("max_num_seqs is 64 (config, max_num_seqs), but 8 (startup log, x.log:3)")
    assert first.setting == ("serving", "max_num_seqs")
    assert second.what == (
        "2 of 2: kv_cache_tokens is 1000 (config, kv_cache_tokens), but 262144 (metrics, "
        "kv_cache_size_tokens) of a:1"
    )


def test_api_servers_that_are_told_are_fine() -> None:
    key = next(iter(targets_of(plan_with(), "a:1")))
    assert [s.status for s in counting(key, {"several_api_servers": True}, None)] == ["WARNING"]
    assert [s.status for s in counting(key, {"several_api_servers": True}, 2.0)] == ["ok"]
    assert list(counting(key, {"several_api_servers": False}, None)) == []


def test_pools_without_targets_and_targets_without_a_pool(shared_data: Path) -> None:
    plan = plan_with(replace(COMPLETE, match={"namespace": "elsewhere"}))
    targets = targets_of(plan, "a:1", "b:1")
    scrapes = scrapes_of({"a:1": page_text(shared_data), "b:1": page_text(shared_data)})
    told = {c.what: c for c in trouble(checkup(scrapes, targets, plan, Inputs(has_baseline=True)))}
    assert "no configured pool matches 2 of 2 targets (a:1, b:1)" in told
    assert told["no target belongs to it"].where == "chat"
