"""What rule and tree files are made of: conditions, columns, mappings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema, model_validator

from driftwatch.condition import Condition, parse_condition
from driftwatch.condition_text import MAX_CHARACTERS
from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.metric_names import columns_from, metric_at
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


# of a target, which people look for among the columns
_LABELS = frozenset({"pool", "model_name", "model", "namespace", "job", "instance"})
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


def _refusal(text: str, error: ConditionError) -> Found:
    """Code, message, help and place of what is wrong with a condition."""
    span = (error.line, error.column, error.length)
    if (metric := metric_at(text, error.line, error.column)) is not None:
        offset, name = metric
        message = f"{name} is a metric, not a column"
        return "unknown-column", message, columns_from(name), (error.line, offset + 1, len(name))
    help_text = _OF_A_POOL if error.message in _LABELS else error.help_text
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
