"""The book: its chapters in order, and the files that its commands read."""

from __future__ import annotations

import claims_batching
import claims_care
import claims_knobs
import claims_planning
import claims_signals
from claims_book import Claim, RequestFile

OPENING = """\
# The folklore of batching, measured

What teams repeat about batching in vLLM, and what driftwatch's commands measured. `make claims`
writes this page and types no figure in; `scripts/claims --commands` prints the commands of every
claim.

Some claims read the recording of a real vLLM 0.32 server that ships with driftwatch. The others go
through the [simulator](sre/simulator.md) with step times from a GPU's datasheet: trust the factors
between two settings more than the absolute speeds.
"""

OUT_OF_SCOPE = """\
Batches in training; other engines than vLLM (metrics are data, so that others can follow);
pipelines of several models beyond watching each stage as a pool; model switching and serverless
cold starts, which look like restarts; routing by predicted length, which the simulator could
price.
"""

FILES: dict[str, RequestFile] = {
    **claims_signals.FILES,
    **claims_knobs.FILES,
    **claims_planning.FILES,
}

CHAPTERS: tuple[tuple[str, str, tuple[Claim, ...]], ...] = (
    (
        "What the metrics say",
        "Numbers that do not mean what their names say.",
        claims_signals.CLAIMS,
    ),
    (
        "Settings",
        "What a setting gives back, and when none does.",
        claims_knobs.CLAIMS,
    ),
    (
        "Ways of batching",
        "The classic comparison, on the same requests, clock and step-time model.",
        claims_batching.CLAIMS,
    ),
    (
        "Memory, speed and queues",
        "Arithmetic that is often done from memory.",
        claims_planning.CLAIMS,
    ),
    (
        "Looking after a server",
        "Habits, and what they are worth.",
        claims_care.CLAIMS,
    ),
)
