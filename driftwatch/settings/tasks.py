"""Who does the slow work: weekly reports, compaction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from driftwatch.settings.values import Seconds
from driftwatch.yaml_models import Part


class TaskSettings(Part):
    """Who does the slow work."""

    run_by: Literal["inline", "workers"] = Field(
        "inline", description="the process that asks for it, or driftwatch worker on PostgreSQL"
    )
    heartbeat: Seconds = Field(
        10.0, description="time between two signs of life of a worker; it may miss two"
    )
