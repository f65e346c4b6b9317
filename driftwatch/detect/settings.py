"""What a person may set about detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """Fixed while a tick runs.

    Attributes:
        false_episodes_per_server_month: the budget that the weekly reset of thresholds aims at.
        holidays: days (UTC) that are no ordinary day of the week; name by day.
        accepts_proposals: take a proposed pin without asking, as ``watch``, ``demo`` and ``replay``
            do and say; a service never does.
    """

    false_episodes_per_server_month: float = 0.25
    holidays: Mapping[date, str] = field(default_factory=dict)
    accepts_proposals: bool = False
