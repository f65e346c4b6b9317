"""What a person may set about detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """Fixed while a tick runs."""

    # the budget that the weekly reset of thresholds aims at
    false_episodes_per_server_month: float = 0.25
    # days (UTC) that are no ordinary day of the week; name by day
    holidays: Mapping[date, str] = field(default_factory=dict)
    # take a proposed baseline without asking, as ``watch``, ``demo`` and ``replay`` do and say; a
    # service never does
    accepts_proposals: bool = False
