"""Hints for autoscalers."""

from __future__ import annotations

from pydantic import Field

from driftwatch.yaml_models import Part


class AutoscalingSettings(Part):
    """With it the capacity of every target is simulated, and replicas are advised."""

    # the load below which a verdict says that nothing is scarce (recommend.candidates.MARGIN)
    target_load_ratio: float = Field(
        0.8, gt=0, le=1, strict=True, description="load per capacity that a pool shall stay at"
    )
