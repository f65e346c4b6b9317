"""What a verdict is made of: today's replay, its capacity, and the demand it stands against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftwatch.model import Serving
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.sweep import Ground

# Below it nothing is scarce: detection.md has BatchDrift from 0.8 on.
MARGIN = 0.8


@dataclass(frozen=True, slots=True)
class Case:
    """What a verdict is made of.

    Attributes:
        ground: of the sweep.
        serving: where today's settings were read.
        today: replayed, with its capacity.
        offered: requests a second of one replica.
        replicas: of the pool; None = unknown.
        reference_capacity: at the reference's lengths; None = unknown.
        reference_tokens_per_second: of one replica, in the reference; None = unknown.
        saturated: TTFT of today cannot be replayed.
        met_in_window: target (``ttft``, ``tpot``) → whether the window's own p95 met it; what was
            not observed is not in it.
    """

    ground: Ground
    serving: Serving
    today: Candidate
    offered: float
    replicas: int | None
    reference_capacity: float | None
    reference_tokens_per_second: float | None = None
    saturated: bool = False
    met_in_window: Mapping[str, bool] = field(default_factory=dict)

    @property
    def utilization(self) -> float | None:
        """Offered rate over capacity."""
        limit = self.today.capacity_requests_per_second
        return None if not limit else self.offered / limit

    @property
    def share(self) -> float:
        """The share of requests that shall meet the targets."""
        slo = self.ground.judged.slo
        return slo.share if slo else 0.95

    @property
    def met(self) -> bool:
        """The share is met in every world, and was in the window as far as it was observed."""
        low = self.today.in_target_low_ratio
        return all(self.met_in_window.values()) and low is not None and low >= self.share

    @property
    def overloaded(self) -> bool:
        """More is asked for than can be served within the targets."""
        return self.utilization is not None and self.utilization > 1.0

    @property
    def margin(self) -> bool:
        """… and the demand leaves room."""
        return self.met and self.utilization is not None and self.utilization < MARGIN
