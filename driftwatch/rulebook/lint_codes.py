"""The lints: what `driftwatch check` finds in rules and trees that can be read.

Every code has a heading of its name in docs/sre/checks.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

LINTS: Mapping[str, Literal["error", "warning"]] = {
    # conditions
    "never-holds": "error",
    "always-holds": "error",
    "unit": "warning",
    "demand-alone": "warning",
    "until-contradicts": "error",
    # times
    "for-rounded": "warning",
    "for-long": "warning",
    # overrides
    "shadowed": "warning",
    "no-effect": "warning",
    # who hears of it
    "unrouted": "warning",
    # what on-call reads
    "no-summary": "warning",
    "annotation": "warning",
    "template": "error",
    "runbook-url": "error",
    "no-runbook": "warning",
    # trees
    "unknown-knob": "error",
    "unreachable-leaf": "error",
}
