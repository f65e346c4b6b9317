"""doctor on GPUs: contradicted counts, fields that are not read, lost GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from checkup_cases import COMPLETE, NOW, ago, page_text, plan_with, scrapes_of, targets_of, trouble
from fakes.dcgm_exporter import DcgmExporter
from fakes.dcgm_pages import FAMILIES, FakeGpu, dcgm_page, workload

from driftwatch.collect.dcgm_sources import DcgmPagesSource
from driftwatch.doctor.checks import Check, Checkup
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.pipeline.plan import Pool


def _read(page: str) -> pl.DataFrame:
    """As the real source reads it, a few seconds ago."""
    with DcgmExporter(page) as exporter:
        source = DcgmPagesSource([exporter.url])
        collected = source.collect(ago(15), NOW)
        source.close()
    return collected.gpus.with_columns(time=pl.lit(ago(5), dtype=collected.gpus.schema["time"]))


def _checked(shared_data: Path, page: str | None, pool: Pool = COMPLETE, **labels: str) -> Checkup:
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
    found = _checked(shared_data, dcgm_page(_gpus(count)), pool, namespace="ml", pod="p")
    check = _of(found, words)
    assert (check.status, check.fix) == (status, fix)
    assert found.ready is (status != "WRONG")


def test_no_readings_are_one_check(shared_data: Path) -> None:
    found = _checked(shared_data, None)
    check = _of(found, "no DCGM or NVML reading")
    assert check.status == "MISSING"
    assert check.disables[0] == "GpuLost"
    assert any("gpus_per_replica is not declared" in cost for cost in check.disables)
    declared = _checked(shared_data, None, replace(COMPLETE, gpus_per_replica=1.0))
    assert not any("declared" in cost for cost in _of(declared, "no DCGM").disables)
    later = found.learning | found.off
    assert "LatencyCreep" in later  # waits for days, not for readings
    assert {rule for rule, can in found.rules.items() if not can} - later == {"GpuLost"}


def test_readings_that_join_no_target_say_by_what(shared_data: Path) -> None:
    found = _checked(shared_data, dcgm_page(_gpus(1, "other")), namespace="ml", pod="p")
    check = _of(found, "no GPU readings")
    assert (check.status, check.disables) == ("MISSING", ("GpuLost", "tokens/s/GPU"))
    assert "none names pod ml/p" in check.what
    assert found.rules["GpuLost"] is False
    pool = replace(COMPLETE, gpus_per_replica=1.0)
    found = _checked(shared_data, dcgm_page(_gpus(1, "other")), pool, namespace="ml", pod="p")
    assert _of(found, "no GPU readings").disables == ("GpuLost",)
    assert _of(found, "GPUs: declared").status == "ok"


def test_fields_that_are_not_read_name_the_line_that_turns_them_on(shared_data: Path) -> None:
    names = tuple(name for name in FAMILIES if "PROF_GR_ENGINE" not in name)
    found = _checked(shared_data, dcgm_page(_gpus(2), families=names), namespace="ml", pod="p")
    checks = [c for c in trouble(found) if c.where == "DCGM"]
    (check,) = [c for c in checks if "GR_ENGINE" in c.what]
    assert "not exported" in check.what
    assert "(2 of 2 GPUs)" in check.what
    assert check.fix is not None
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, " in check.fix


def test_a_lost_gpu_is_wrong(shared_data: Path) -> None:
    dark = dict.fromkeys(
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    )
    gpus = _gpus(1, DCGM_FI_DEV_XID_ERRORS=79, **dark)
    found = _checked(shared_data, dcgm_page(gpus), namespace="ml", pod="p")
    assert _of(found, "fell off the bus").status == "WRONG"


def test_units_of_readings(shared_data: Path) -> None:
    gpus = _gpus(2, DCGM_FI_DEV_POWER_USAGE=512250, DCGM_FI_DEV_SM_CLOCK=1.98e9)
    found = _checked(shared_data, dcgm_page(gpus), namespace="ml", pod="p")
    wrong = [c for c in found.checks if c.status == "WRONG"]
    assert [c.what.partition(":")[0] for c in wrong] == [
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_POWER_USAGE",
    ]
    assert not found.ready
