"""``overrides:`` of a rule, as written: what the rule is in some pools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from driftwatch.model import Severity
from driftwatch.rulebook.values import RulePart, When
from driftwatch.yaml_models import Duration, fault


def pool_pattern(names: Collection[str]) -> str:
    """The regular expression of pools' names in which * stands for any text.

    >>> pool_pattern(["chat-*", "rag.1"])
    '^(?:chat\\\\-.*|rag\\\\.1)$'
    """
    texts = (re.escape(name).replace(r"\*", ".*") for name in names)
    return rf"^(?:{'|'.join(texts)})$"


def _pool_names(value: object) -> object:
    return [value] if isinstance(value, str) else value


class OverrideInFile(RulePart):
    """What a rule is in some pools, as written; what it leaves out is as in the rule."""

    INSTEAD: ClassVar[Mapping[str, tuple[str, str]]] = {
        "pools": ("pool", "one name or a list; * stands for any text"),
        "match": ("pool", "a pool of the configuration has the labels that its targets carry"),
    }

    pool: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(_pool_names),
        Field(min_length=1),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
                ],
                "description": "the pools, one name or a list; * stands for any text",
            }
        ),
    ]
    when: When | None = None
    precondition: When | None = Field(None, alias="given")
    until: When | None = None
    for_seconds: Duration | None = Field(None, alias="for")
    keep_firing_for_seconds: Duration | None = Field(None, alias="keep_firing_for")
    severity: Severity | None = None
    enabled: bool | None = Field(None, strict=True)
    reason: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.enabled is False and not self.reason:
            help_text = 'reason: "why it is off"'
            message = "a disabled rule needs a reason"
            raise fault("missing-key", message, help_text, inner=("enabled",))
        if not self.changes:
            message = "the override changes nothing"
            raise fault("value", message, "when, for, severity, enabled …", inner=("pool",))
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the rule that are other there."""
        values = {name: value for name, value in dict(self).items() if name != "pool"}
        return {name: value for name, value in values.items() if value is not None}
