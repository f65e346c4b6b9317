"""How a rule's page looks, as data: ``page:`` of a rule, or of a group for all of its rules.

```yaml
page:
  says: ["no token for {seconds_since_last_token}, {present}", "no token for a while"]
  since: []
  cause: ["{meaning}"]
  advice: Do not change a knob; restart the engine
  family: stuck
```

A template names evidence columns and phrases in braces. Of a list the first one counts whose names
all have a value on the page (and, in line 1, the first one that fits).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.values import RulePart
from driftwatch.yaml_models import fault, near

Family = Literal["traffic", "speed", "stuck", "retune", "none"]
Lengths = Literal["mean", "day"]

# name → what it prints; the functions are in driftwatch/notify/phrases/
PHRASES: Mapping[str, str] = {
    "began": "when it began, 02:45 UTC",
    "harm": "what users feel: a missed target, else how long they wait",
    "missed": "how many requests miss a latency target",
    "queueing": "how long requests queue before their first step",
    "limit": "which limit is full, with its numbers and those of the others",
    "full": "which limit is full, in a few words",
    "present": "how many requests are running or waiting",
    "given_up": "how many requests that began will not finish, where that is a twentieth",
    "moved": "lengths that moved: prompts are ×2.3 longer",
    "unchanged": "lengths that did not move: generations unchanged",
    "means": "mean lengths before and now: 211 → 338 tokens",
    "lengths": "what moved since then, with mean lengths and the number of requests",
    "slower": "how much slower the engine is at equal load",
    "slower_than_peers": "how much slower than its peers it is",
    "capacity_lost": "how much of the pool's capacity its slow servers cost",
    "step_time": "the step time now, and what this load used to take",
    "peers": "how many replicas are slower, and how the others run",
    "drift_14d": "the slow drift over days, the worst first",
    "least_drift_14d": "the lower end of its 95 % interval",
    "began_14d": "the day 14 days ago",
    "missing_count": "how many metrics are missing",
    "missing_metrics": "which metrics are missing",
    "missing_reason": "why no metric of the servers is left",
    "gpus": "clocks, use and power of the GPUs, with those of the baseline",
    "gpu_names": "which GPUs are lost",
    "gpus_of_server": "how many GPUs are lost, of how many",
    "meaning": "what the leaf of the tree means",
    "target_kept": "whether the latency targets are kept",
    "baseline": "the day of the baseline",
    "nothing_to_do": "that no limit is full and nothing is to be done; not where one is full",
    "in_target": "once it is over: that all requests are in target, and for how long",
}
_NAME = re.compile(r"\{([^{}]*)\}")


def _template(text: str) -> str:
    for name in _NAME.findall(text):
        if name not in PHRASES and name not in BY_NAME:
            message = f"{{{name}}} is neither a phrase nor an evidence column"
            raise fault("unknown-column", message, near(name, {*PHRASES, *BY_NAME}))
    return text


Template = Annotated[str, AfterValidator(_template)]
Templates = tuple[Template, ...]


class PageForm(RulePart):
    """What a rule's page says."""

    # how bad, for line 1, the longest first; empty = the rule's summary, else the cost
    says: Templates = ()
    since: Templates = ("{lengths}",)  # what stands beside the time at which it began
    cause: Templates = ("{limit}", "{meaning}")  # why
    also: Templates = ("{given_up}",)  # what else a person acts on
    over: Templates = ()  # what is so again once it is over
    # what to do where neither a leaf nor a recommendation says it
    advice: Template | None = None
    advice_of_many: Template | None = None  # the same where the page is about several targets
    # which ratio of lengths the phrases compare with the baseline's mean: now, or a whole day's
    lengths: Lengths = "mean"
    # which kind of drift the weekly report counts it as; retune = a decision, none = an incident
    family: Family | None = None


KEYS = tuple(PageForm.model_fields)
