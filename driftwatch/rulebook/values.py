"""The parts of rule and tree files: conditions, columns, and how a rule's page looks (``page:``).

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
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema, model_validator

from driftwatch.collect.registry import REGISTRY
from driftwatch.condition import Condition, parse_condition
from driftwatch.condition_text import MAX_CHARACTERS
from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.yaml_models import Found, Part, fault, near


class RulePart(Part):
    """A mapping of a rule or tree file; a key without a value counts as absent."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _present(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


MOST_COLUMNS = 3
_METRIC = re.compile(r"[a-zA-Z_]\w*:\w+")
_SERIES = re.compile(r"_(bucket|sum|count)$")
# of a target, which people look for among the columns
_LABELS = frozenset({"pool", "model_name", "model", "namespace", "job", "instance"})
_WORDS = frozenset(word for column in COLUMNS for word in column.words or ())  # text columns have
_OF_A_POOL = (
    "another condition in some pools, in driftwatch.yaml: rules: {overrides: [{alert: …, "
    "pools: [chat-*], when: …}]}"
)


def disabled_needs_reason(enabled: bool | None, reason: str | None) -> None:
    """Refuse a rule that is off and does not say why."""
    if enabled is False and not reason:
        help_text = 'reason: "why it is off"'
        message = "a disabled rule needs a reason"
        raise fault("missing-key", message, help_text, inner=("enabled",))


def metric_at(text: str, line: int, column: int) -> tuple[int, str] | None:
    """The metric name around a 1-based place of a text: its offset in the line, and the name."""
    of_line = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    for match in _METRIC.finditer(of_line):
        if match.start() <= column - 1 < match.end():
            return match.start(), match.group()
    return None


def columns_from(metric: str) -> str:
    """Which columns to read in place of a metric."""
    names = _columns_of(metric)
    return f"write {names}" if names else "driftwatch evidence lists the columns"


def _columns_of(metric: str) -> str:
    """The columns made of a metric, those that need the fewest inputs first; empty without one."""
    name = _SERIES.sub("", metric)
    inputs = {
        one.column
        for one in REGISTRY
        if name in (one.wire_name, *(old.wire_name for old in one.old_names))
    }
    plain = [column.name for column in COLUMNS if column.name in inputs]
    rest = sorted(
        (column for column in COLUMNS if inputs.intersection(column.sources)),
        key=lambda column: (column.detected, len(column.sources), len(column.needs)),
    )
    return " or ".join(plain or [column.name for column in rest][:MOST_COLUMNS])


def _refusal(text: str, error: ConditionError) -> Found:
    """Code, message, help and place of what is wrong with a condition."""
    span = (error.line, error.column, error.length)
    if (metric := metric_at(text, error.line, error.column)) is not None:
        offset, name = metric
        message = f"{name} is a metric, not a column"
        return "unknown-column", message, columns_from(name), (error.line, offset + 1, len(name))
    help_text = _OF_A_POOL if error.message in _LABELS else error.help_text
    if error.message in _WORDS:
        help_text = f"text stands in single quotes: '{error.message}'"
    elif error.code == "unknown-column" and (columns := _columns_of(f"vllm:{error.message}")):
        help_text = f"write {columns}"  # vLLM's name without its prefix
    return error.code, error.message, help_text, span


def _condition(value: object) -> Condition:
    if not isinstance(value, str | int | float):
        raise fault("type", "a condition such as scrapes > 1 is wanted here")
    try:
        condition = parse_condition(str(value).rstrip(), columns=BY_NAME)
    except ConditionError as error:
        first, *more = (_refusal(str(value), one) for one in (error, *error.others))
        raise fault(*first[:3], span=first[3], more=more) from None
    if not condition.columns:
        help_text = "name an evidence column: driftwatch evidence"
        raise fault("constant", "the condition reads no column", help_text)
    return condition


def _column(name: str) -> str:
    if name not in BY_NAME:
        raise fault("unknown-column", name or "an empty name", near(name, BY_NAME))
    return name


# What an editor has of them.
CONDITION = {
    "title": "condition",
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_CHARACTERS,
    "examples": ["waiting_capacity_requests > 20 AND kv_cache_usage_ratio < 0.8"],
}
COLUMN = {"title": "evidence column", "type": "string", "enum": list(BY_NAME)}

When = Annotated[Condition, BeforeValidator(_condition), WithJsonSchema(CONDITION)]
Column = Annotated[str, AfterValidator(_column), WithJsonSchema(COLUMN)]


Family = Literal["traffic", "speed", "stuck", "retune", "none"]
Lengths = Literal["mean", "day"]

# docs/sre/rules.md lists what each prints; the functions are in driftwatch/notify/phrases/
PHRASES = (
    "began", "harm", "missed", "queueing", "limit", "full", "present", "given_up", "moved",
    "giving_up", "unchanged", "means", "lengths", "slower", "slower_than_peers", "capacity_lost",
    "step_time",
    "peers", "drift_14d", "least_drift_14d", "began_14d", "missing_count", "missing_metrics",
    "missing_reason", "gpus", "gpu_names", "gpus_of_server", "meaning", "target_kept", "baseline",
    "also_missing", "nothing_to_do", "in_target", "overload",
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
    # which kind of drift the weekly report counts it as; none = an incident; retune = a decision
    # about lengths that moved, which bars no new baseline
    family: Family | None = None

    @property
    def columns_in_line_1(self) -> frozenset[str]:
        """Evidence columns that line 1 names."""
        return frozenset(n for text in self.says for n in _NAME.findall(text) if n in BY_NAME)
