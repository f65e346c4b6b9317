"""doctor: what ``driftwatch recommend`` lacks on a pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from checkup_cases import COMPLETE, page_text, plan_with, scrapes_of, targets_of

from driftwatch.doctor.checks import Check
from driftwatch.doctor.pools import PoolScrapes, can_recommend
from driftwatch.model import Fingerprint
from driftwatch.pipeline.plan import Pool


def _checks(text: str, pool: Pool) -> list[Check]:
    scrapes = scrapes_of({"a:1": text})
    plan = plan_with(pool)
    targets = targets_of(plan, "a:1")
    rows = dict(zip(sorted(targets), scrapes.iter_rows(named=True), strict=True))
    return can_recommend(PoolScrapes(pool, dict(targets), rows), plan, scrapes.clear())


def test_what_the_tables_do_not_know_is_named_and_nothing_else_is_in_the_way(
    shared_data: Path,
) -> None:
    model, gpu = _checks(page_text(shared_data), COMPLETE)
    assert (model.status, gpu.status) == ("OFF", "OFF")
    assert "no model 'tiny-llama'" in model.what
    assert gpu.what.endswith("no datasheet, gpu unknown")
    assert (model.setting, gpu.setting) == (("serving", "model"), ("serving", "gpu"))
    known = replace(COMPLETE, model="meta-llama/Llama-3.1-8B", gpu="NVIDIA H100 80GB HBM3")
    (fine,) = _checks(page_text(shared_data), known)
    assert fine.status == "ok"
    assert "meta-llama/Llama-3.1-8B on H100-80GB" in fine.what


def test_what_no_replay_knows_is_a_warning(shared_data: Path) -> None:
    told = Fingerprint(knobs={"enable_lora": "True"}, identity={"pipeline_parallel_size": "2"})
    found = _checks(page_text(shared_data), replace(COMPLETE, reported=told))
    said = [check.what for check in found if check.status == "WARNING"]
    assert said == [
        "runs LoRA, which is not simulated",
        "runs pipeline parallelism (2 stages), which is not simulated",
    ]
    assert all(c.disables == ("recommend",) for c in found if c.status == "WARNING")
