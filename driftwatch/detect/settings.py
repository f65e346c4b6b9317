"""What a person may set about detection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DetectSettings:
    """Fixed while a tick runs."""

    # the budget that the report holds pages against
    false_episodes_per_server_month: float = 0.25
    # take a proposed baseline without asking, as ``watch``, ``demo`` and ``replay`` do and say; a
    # service never does
    accepts_proposals: bool = False
