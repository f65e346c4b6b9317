"""What rule and tree files are made of: conditions, columns, mappings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, model_validator

from driftwatch.condition import Condition, parse_condition
from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME
from driftwatch.yaml_models import Part, fault, near


class RulePart(Part):
    """A mapping of a rule or tree file; a key without a value counts as absent."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _present(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


def _condition(value: object) -> Condition:
    if not isinstance(value, str | int | float):
        raise fault("type", "a condition such as scrapes > 1 is wanted here")
    try:
        condition = parse_condition(str(value).rstrip(), columns=BY_NAME)
    except ConditionError as error:
        span = (error.line, error.column, error.length)
        raise fault(error.code, error.message, error.help_text, span=span) from None
    if not condition.columns:
        help_text = "name an evidence column: driftwatch evidence"
        raise fault("constant", "the condition reads no column", help_text)
    return condition


def _column(name: str) -> str:
    if name not in BY_NAME:
        raise fault("unknown-column", name, near(name, BY_NAME))
    return name


When = Annotated[Condition, BeforeValidator(_condition)]
Column = Annotated[str, AfterValidator(_column)]
