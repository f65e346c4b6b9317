"""Thresholds of the limits model, each with its source."""

from __future__ import annotations

# recommendation.md, "Which limit binds": running >= min(0.95 S, S - 1) counts as at the cap.
CAP_BAND_RATIO = 0.95
# recommendation.md, same table; vllm.md 3: under hard thrash usage oscillates 0.74-1.0, so KV is
# pressed from 0.85 or, below it, when requests are preempted.
KV_PRESSED_RATIO = 0.85
# vllm.md 4, W2 with B=256: a full budget shows 199-257 tokens a step (>= 0.78 B), because steps
# that only decode are in the mean.
BUDGET_FULL_RATIO = 0.75
# A plateau must be seen often enough not to be chance: with 8 scrapes, a level that wandered over
# two values of equal chance would stay in a band of one in 0.4 % of cases.
PLATEAU_MIN_SCRAPES = 8
# run_cap: 76 of 76 queued scrapes in the band. A budget-bound server (vllm.md 4, W2: running
# 3.2-18.5 of 64) leaves the band in most scrapes.
PLATEAU_SHARE = 0.8
# The window over which a limit is said to bind (detection.md, BatchLimitBinding).
BINDING_WINDOW_SECONDS = 600.0
# "at least half of the last 10 min's scrapes" (detection.md): what binds is named from there on.
BINDING_SHARE = 0.5
