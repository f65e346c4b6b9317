"""What ran, in three groups: what a real server says of itself, and what counts as a change."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.collect.fingerprint import (
    GROUPS,
    differences,
    fingerprint_of,
    from_version,
    merged,
    release_text,
)
from driftwatch.collect.pages import PageParser
from driftwatch.model import Fingerprint, Serving, Setting


def test_a_target_of_a_real_page_has_flags_and_no_release(shared_data: Path) -> None:
    batch = PageParser().batch()
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_bytes()
    batch.add("host:8000", datetime(2026, 11, 21, tzinfo=UTC), page)
    row = batch.finish().scrapes.row(0, named=True)
    serving = Serving(max_num_seqs=Setting(64.0, "config"))
    labels = {"model_name": row["model_name"], "image": "vllm/vllm-openai:v0.32.0", "version": "7"}
    found = fingerprint_of(labels, serving, row["cache_config"], ("NVIDIA H100",))
    assert found.identity == {"gpu": "NVIDIA H100", "model_name": "tiny-llama"}
    assert found.knobs["max_num_seqs"] == "64"
    assert found.knobs["kv_cache_blocks"].isdigit()
    assert found.knobs["enable_prefix_caching"] == "True"
    assert "num_gpu_blocks" not in found.knobs
    assert "None" not in found.knobs.values()
    assert found.release == {"image": "vllm/vllm-openai:v0.32.0"}
    assert release_text(found) == "image vllm/vllm-openai:v0.32.0"
    assert release_text(Fingerprint()) is None
    told = merged(from_version({"version": "0.32.0"}), found)
    assert told.release == {"vllm": "0.32.0", "image": "vllm/vllm-openai:v0.32.0"}
    assert from_version({"version": None}) == from_version({}) == Fingerprint()


@pytest.mark.parametrize(
    ("group", "before", "now", "text"),
    [
        ("identity", "model_name a", "model_name b", "model_name a → b"),
        ("knobs", "max_num_seqs 64", "max_num_seqs 128", "max_num_seqs 64 → 128"),
        ("release", "vllm 0.32.0", "vllm 0.33.0", "vllm 0.32.0 → 0.33.0"),
        # unknown on one side is no difference
        ("release", "vllm 0.32.0", "image x", None),
        # vLLM's own sizing wanders by a few blocks; another flag does not
        ("knobs", "kv_cache_blocks 1000", "kv_cache_blocks 1050", None),
        ("knobs", "kv_cache_blocks 1000", "kv_cache_blocks 940", "kv_cache_blocks 1000 → 940"),
        ("knobs", "watermark 0.9", "watermark 0.90", None),
        ("knobs", "watermark 0.90", "watermark 0.92", "watermark 0.90 → 0.92"),
    ],
)
def test_what_counts_as_a_change(group: str, before: str, now: str, text: str | None) -> None:
    old, new = (Fingerprint(**{group: dict([one.split()])}) for one in (before, now))
    found = differences(old, new)
    assert [one.text for one in found] == ([] if text is None else [text])
    assert [one.group for one in found] == [group] * len(found)
    for other in GROUPS:
        assert differences(old, new, [other]) == (found if other == group else ())
