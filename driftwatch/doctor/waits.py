"""What the targets of a database lack for a baseline."""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.baselines.candidates import material_of_store, waiting_for, without_baseline
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
    for one in waiting_for(material, waiting[:_MOST_READ]):
        soonest = "" if one.earliest is None else f", not before {one.earliest:%H:%M} UTC"
        what = "no baseline accepted" if one.lacking is None else f"{one.lacking}{soonest}"
        texts[one.target.key] = what
    return texts
