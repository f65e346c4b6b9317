"""What the targets of a database lack for a baseline."""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.baselines.candidates import Subject, material_of_store, offer, without_baseline
from driftwatch.model import TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store

_MOST_READ = 20  # targets whose minutes are read for what a baseline lacks


def baseline_waits(store: Store, plan: Plan) -> Mapping[TargetKey, str]:
    """Target → what its baseline lacks, "" where one is in force.

    Raises StoreError: the database does not serve.
    """
    material = material_of_store(store, plan)
    waiting = without_baseline(material)
    texts = dict.fromkeys(material.targets, "") | {one.key: "no baseline" for one in waiting}
    for one in waiting[:_MOST_READ]:
        lacking = offer(material, Subject("target", (one,))).lacking
        texts[one.key] = lacking or "no baseline accepted"
    return texts
