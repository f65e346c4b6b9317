"""Test files of rules: what may stand in them.

```yaml
bases:
  full: {base: healthy, binding_limit: max_num_batched_tokens}
tests:
  - name: prompts x2.3
    base: full
    series:
      rag-8b-0: {prompt_tokens_mean_ratio: 1x29 2.3x30}
    expect:
      - {at: 40m, alerts: [BatchDrift], leaf: token_budget_binding}
```
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from driftwatch.evidence import BY_NAME
from driftwatch.model import Answer
from driftwatch.rulebook.values import Column, RulePart
from driftwatch.yaml_models import Duration, fault, near

# As written in the file: driftwatch.ruletests.series reads it.
Notation = Annotated[str | int | float | bool | None, Field(description="a value a minute")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=120)]
Instead = dict[str, tuple[str, str]]
INHERITS = "base"


def _column_or_base(name: str) -> str:
    if name != INHERITS and name not in BY_NAME:
        raise fault("unknown-column", name or "an empty name", near(name, {*BY_NAME, INHERITS}))
    return name


BaseKey = Annotated[str, AfterValidator(_column_or_base)]


def _whole_minutes(seconds: float) -> float:
    if seconds % 60:
        raise fault("duration", "evidence has one row a minute", "write whole minutes: 40m")
    return seconds


Minutes = Annotated[Duration, AfterValidator(_whole_minutes)]


class Expectation(RulePart):
    """What driftwatch should do about one target or pool at one time."""

    INSTEAD: ClassVar[Instead] = {
        "eval_time": ("at", "time since the beginning of the test"),
        "alertname": ("alerts", "every alert that fires then: [BatchDrift]"),
        "exp_alerts": ("alerts", "every alert that fires then: [BatchDrift]"),
        "advice": ("leaf", "where the walk ends; a test compares no advice"),
    }

    at: Minutes | None = Field(None, description="since the beginning; without it the last minute")
    target: str | None = Field(None, description="one target; without it the only one")
    pool: str | None = Field(None, description="a pool's own incidents, in place of a target's")
    alerts: tuple[str, ...] | None = Field(None, description="every alert that fires, no other")
    alerts_include: tuple[str, ...] = Field((), description="alerts that fire, beside others")
    tree: str | None = Field(None, description="the tree to walk; without it that of the alerts")
    leaf: str | None = Field(None, description="where the walk ends")
    path: dict[str, Answer] = Field(
        default_factory=dict, description="questions that the walk asks, with their answers"
    )
    missing: tuple[Column, ...] | None = Field(
        None, description="columns whose absence ended the walk"
    )
    line_1: str | None = Field(None, description="line 1 of the newest page about it")

    @model_validator(mode="after")
    def _check(self) -> Self:
        some = (self.alerts, self.leaf, self.missing, self.line_1)
        if not (any(v is not None for v in some) or self.alerts_include or self.path):
            help_text = "alerts: [] expects that nothing fires"
            raise fault("nothing-expected", "nothing is expected here", help_text)
        if self.target is not None and self.pool is not None:
            message = "target or pool, not both"
            raise fault("value", message, "one entry for each", inner=("pool",))
        return self

    @property
    def every_alert(self) -> tuple[str, ...]:
        """Each that it names."""
        return (*(self.alerts or ()), *self.alerts_include)


class Targets(RulePart):
    """Latency targets of the pools of a test with series."""

    ttft_seconds: float | None = Field(None, gt=0, strict=True, description="time to first token")
    tpot_seconds: float | None = Field(None, gt=0, strict=True, description="per output token")
    share: float = Field(0.95, gt=0, le=1, strict=True, description="of requests that must meet it")


class RuleTest(RulePart):
    """One test: what goes in, and what is expected."""

    INSTEAD: ClassVar[Instead] = {
        "input_series": ("series", "target: {column: values}"),
        "alert_rule_test": ("expect", "- {at: 40m, alerts: [BatchDrift]}"),
        "interval": ("series", "its columns have a value a minute"),
    }

    name: Name
    base: str | None = Field(None, description="columns that `series` does not name are as here")
    series: dict[Name, dict[Column, Notation]] | None = Field(
        None, description="target, then column, then its values"
    )
    pools: dict[Name, tuple[str, ...]] = Field(
        default_factory=dict,
        description="pool and its targets, those without series as the base; "
        "a target that no pool names has one of its own name",
    )
    slo: Targets | None = Field(None, description="latency targets that pages print")
    recording: str | None = Field(None, description="file or folder; or one that is shipped")
    config: str | None = Field(None, description="configuration with the recording's pools")
    baseline: str | None = Field(None, description="FROM..TO of the recording, as 10m..95m")
    expect: tuple[Expectation, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        sources = [n for n in ("series", "recording") if getattr(self, n) is not None]
        if len(sources) != 1:
            message = "a test has either series or a recording"
            inner = (sources[1],) if sources else ("name",)
            raise fault("value", message, inner=inner)
        for key, needs in _NEEDS.items():
            if key in self.model_fields_set and needs != sources[0]:
                raise fault("value", f"{key}: needs {needs}:", inner=(key,))
        return self


_NEEDS = {
    "base": "series",
    "pools": "series",
    "slo": "series",
    "config": "recording",
    "baseline": "recording",
}


class RuleTestFile(RulePart):
    """A file of tests."""

    INSTEAD: ClassVar[Instead] = {
        "evaluation_interval": ("tests", "their series have a value a minute"),
        "groups": ("tests", "this is a file of tests; rules stand in files of their own"),
    }

    rule_files: tuple[str, ...] = Field(
        (), description="rule files, folders or globs; without it the folder above"
    )
    bases: dict[Name, dict[BaseKey, Notation]] = Field(
        default_factory=dict, description="rows by name; `base` in one is the row it begins with"
    )
    tests: tuple[RuleTest, ...] = Field(min_length=1)
