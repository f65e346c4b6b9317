"""How a rule's page looks, as data: ``page:`` of a rule, or of a group for all of its rules.

```yaml
page:
  says: ["no token for {seconds_since_last_token}, {present}", "no token for a while"]
  since: []
  cause: ["{meaning}"]
  advice: Restart the engine
  family: stuck
```

A template names evidence columns and phrases in braces. Of a list the first one counts whose names
all have a value on the page (and, in line 1, the first one that fits).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.values import RulePart
from driftwatch.yaml_models import Found, fault, near

Family = Literal["traffic", "speed", "stuck", "retune", "none"]
Lengths = Literal["mean", "day"]

# docs/sre/rules.md lists what each prints; the functions are in driftwatch/notify/phrases/
PHRASES = (
    "began", "harm", "missed", "queueing", "limit", "full", "present", "given_up", "moved",
    "giving_up", "unchanged", "means", "lengths", "slower", "slower_than_peers", "capacity_lost",
    "step_time",
    "peers", "drift_14d", "least_drift_14d", "began_14d", "missing_count", "missing_metrics",
    "missing_reason", "gpus", "gpu_names", "gpus_of_server", "meaning", "target_kept", "baseline",
    "nothing_to_do", "in_target", "overload",
)  # fmt: skip
_NAME = re.compile(r"\{([^{}]*)\}")


def _template(text: str) -> str:
    names = {*PHRASES, *BY_NAME}
    wrong = [one for one in _NAME.finditer(text) if one[1] not in names]
    found: list[Found] = []
    for one in wrong:
        above = text[: one.start()].rpartition("\n")
        span = (text.count("\n", 0, one.start()) + 1, len(above[2]) + 1, len(one[0]))
        message = f"{one[0]} is neither a phrase nor an evidence column"
        found.append(("unknown-column", message, near(one[1], names), span))
    if found:
        first, *more = found
        raise fault(*first[:3], span=first[3], more=more)
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

    @property
    def columns_in_line_1(self) -> frozenset[str]:
        """Evidence columns that line 1 names."""
        return frozenset(n for text in self.says for n in _NAME.findall(text) if n in BY_NAME)
