"""doctor: targets, sources, GPUs: what is missing, stale, or cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from checkup_cases import (
    COMPLETE,
    NOW,
    ago,
    page_text,
    plan_with,
    scrapes_of,
    targets_of,
    trouble,
)
from fakes.dcgm_exporter import DcgmExporter
from fakes.dcgm_pages import FakeGpu, dcgm_page, workload

from driftwatch import doctor
from driftwatch.collect.dcgm_sources import DcgmPagesSource
from driftwatch.collect.startup import FIELDS, serving_of
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.rules import Check, Checkup
from driftwatch.doctor.sources import SourceAnswer
from driftwatch.model import Serving, Setting
from driftwatch.pipeline.plan import Pool
from driftwatch.settings import PoolSettings, ServingSettings
from driftwatch.yaml_models import models_at


def _found(scrapes: pl.DataFrame, *instances: str) -> list[Check]:
    plan = plan_with()
    return trouble(checkup(scrapes, targets_of(plan, *instances), plan, Inputs()))


def test_one_trouble_of_many_targets_is_one_check(shared_data: Path) -> None:
    bad = page_text(shared_data, r"^vllm:num_requests_running\{.*\n")
    instances = [f"host-{n}:8000" for n in range(5)]
    one = scrapes_of({"x": bad})
    scrapes = pl.concat([one.with_columns(instance=pl.lit(i)) for i in instances])
    (check,) = _found(scrapes, *instances)
    assert check.where == "chat"
    assert check.what == (
        "5 of 5 (host-0:8000, host-1:8000, host-2:8000, …): "
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
    (once,) = _found(restarted.reverse().with_columns(time=restarted["time"]), "a:1")
    assert (once.status, "went back once" in once.what) == ("WARNING", True)


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


def test_every_key_that_doctor_names_is_one_of_the_configuration() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(doctor.__path__[0]).glob("*.py")]
    named = {key for text in texts for key in re.findall(r"\b(serving|slo)\.([a-z]\w*):? ", text)}
    assert named
    for part, key in named:
        (model,) = models_at(PoolSettings, (part,))
        assert key in model.model_fields


@pytest.mark.parametrize("name", FIELDS)
def test_a_contradiction_is_mended_by_a_key_of_the_configuration(
    name: str, shared_data: Path
) -> None:
    told = [
        serving_of({name: Setting(64, "config", name)}),
        serving_of({name: Setting(8, "startup log", "x.log:3")}),
    ]
    plan = plan_with()
    scrapes = scrapes_of({"a:1": page_text(shared_data)})
    found = checkup(scrapes, targets_of(plan, "a:1"), plan, Inputs(places={"chat": told}))
    (check,) = trouble(found)
    part, key = check.setting
    assert (part, key in ServingSettings.model_fields) == ("serving", True)
    assert check.fix is not None
    assert check.fix.startswith(f"serving.{key}: ")


def _source(**more: object) -> SourceAnswer:
    said: dict[str, object] = {
        "name": "prometheus 0",
        "kind": "prometheus",
        "setting": ("sources", 0),
        "instances": frozenset({"a:1", "b:1"}),
        "settle_seconds": 15.0,
        "intervals": {"a:1": 15.0, "b:1": 15.0},
    }
    return SourceAnswer(**{**said, **more})  # type: ignore[arg-type]


def _checked(shared_data: Path, source: SourceAnswer, age: float = 10.0) -> Checkup:
    plan = plan_with()
    page = page_text(shared_data)
    scrapes = scrapes_of({"a:1": page, "b:1": page}, ago(age))
    return checkup(scrapes, targets_of(plan, "a:1", "b:1"), plan, Inputs(now=NOW, sources=[source]))


def _scaled(shared_data: Path, listed: frozenset[str] | None) -> Checkup:
    """b:1 was last scraped 167 s ago, and no interval of it is known."""
    plan, page = plan_with(), page_text(shared_data)
    scrapes = pl.concat([scrapes_of({"a:1": page}, ago(10)), scrapes_of({"b:1": page}, ago(167))])
    source = _source(intervals={"a:1": 15.0}, listed=listed)
    targets = targets_of(plan, "a:1", "b:1")
    return checkup(scrapes, targets, plan, Inputs(now=NOW, sources=[source]))


def test_a_target_that_its_source_does_not_list_is_a_warning(shared_data: Path) -> None:
    found = _scaled(shared_data, frozenset({"a:1", "node:9100"}))
    (check,) = trouble(found)
    assert (check.status, check.disables) == ("WARNING", ())
    assert check.what == "1 of 2 (b:1): not listed by prometheus 0 for 167 s"
    assert check.fix == "scaled down: nothing to do; else service discovery"
    assert found.ready


@pytest.mark.parametrize("listed", [None, frozenset({"a:1", "b:1"})])
def test_a_target_that_is_listed_and_not_scraped_disables_every_rule(
    shared_data: Path, listed: frozenset[str] | None
) -> None:
    found = _scaled(shared_data, listed)
    (check,) = trouble(found)
    assert (check.status, check.what) == ("MISSING", "1 of 2 (b:1): no scrape for 167 s")
    assert not any(found.rules.values())


def _every(seconds: float) -> dict[str, object]:
    return {"intervals": {"a:1": seconds, "b:1": seconds}}


NOBODY = frozenset({"node:9100"})


@pytest.mark.parametrize(
    ("source", "age", "status", "words"),
    [
        ({}, 10.0, None, ""),
        (_every(30.0), 10.0, None, ""),
        (_every(45.0), 10.0, "WARNING", "a scrape every 45 s: shares of 10 min stand on 13"),
        (_every(120.0), 10.0, "MISSING", "a scrape every 120 s: most minutes have no two of"),
        ({}, -30.0, "WRONG", "30 s in the future"),
        # a source that lists none of its servers is no scale-down
        ({"listed": NOBODY}, 100.0, "MISSING", "; prometheus 0 lists none of its servers now"),
        # pages are asked at the interval of the configuration
        (
            {"kind": "pages", "intervals": {}, "every_seconds": 90.0},
            10.0,
            "MISSING",
            "a scrape every 90 s",
        ),
    ],
)
def test_how_often_and_how_fresh(
    shared_data: Path, source: dict[str, object], age: float, status: str | None, words: str
) -> None:
    found = _checked(shared_data, _source(**source), age)
    assert [c.status for c in trouble(found)] == ([status] if status else [])
    assert all(words in c.what for c in trouble(found))
    assert found.ready is (status in (None, "WARNING"))


def _read(page: str) -> pl.DataFrame:
    """As the real source reads it, a few seconds ago."""
    with DcgmExporter(page) as exporter:
        source = DcgmPagesSource([exporter.url])
        collected = source.collect(ago(15), NOW)
        source.close()
    return collected.gpus.with_columns(time=pl.lit(ago(5), dtype=collected.gpus.schema["time"]))


def _checked_gpus(
    shared_data: Path, page: str | None, pool: Pool = COMPLETE, **labels: str
) -> Checkup:
    plan = plan_with(pool)
    gpus = pl.DataFrame(schema=_read(dcgm_page([])).schema) if page is None else _read(page)
    return checkup(
        scrapes_of({"a:1": page_text(shared_data)}, ago(5)),
        targets_of(plan, "a:1", **labels),
        plan,
        Inputs(
            now=NOW,
            gpus=gpus,
        ),
    )


def _gpus(count: int, pod: str = "p", **values: float | str | None) -> list[FakeGpu]:
    return [
        FakeGpu(n, f"GPU-{n}", workload=workload("ml", pod), values=values) for n in range(count)
    ]


def _of(found: Checkup, words: str) -> Check:
    (check,) = [c for c in found.checks if words in c.what]
    return check


@pytest.mark.parametrize(
    ("declared", "count", "status", "words", "fix"),
    [
        (2.0, 2, "ok", "GPUs: declared, DCGM agrees", None),
        (2.0, 4, "WRONG", "gpus_per_replica is 2, DCGM shows 4", "gpus_per_replica: 4"),
        (16.0, 8, "WARNING", "gpus_per_replica is 16, DCGM shows 8: over several nodes", None),
    ],
)
def test_declared_and_read_count(
    shared_data: Path, declared: float, count: int, status: str, words: str, fix: str | None
) -> None:
    pool = replace(COMPLETE, gpus_per_replica=declared)
    found = _checked_gpus(shared_data, dcgm_page(_gpus(count)), pool, namespace="ml", pod="p")
    check = _of(found, words)
    assert (check.status, check.fix) == (status, fix)
    assert found.ready is (status != "WRONG")
