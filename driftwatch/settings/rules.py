"""Which rules are read, and what is other in them in some pools."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from driftwatch.settings.values import File, http_url
from driftwatch.yaml_models import Part
from driftwatch.yaml_positions import Entries, Items


def _runbook(text: str) -> str:
    http_url(text.replace("{alert}", "alert"))
    return text


RunbookUrl = Annotated[str, AfterValidator(_runbook)]


class RuleSettings(Part):
    """``rules:`` of the configuration.

    Overrides are read one by one beside the rules that they name (``rulebook.overrides``).
    """

    files: tuple[File, ...] = Field(
        (), description="rule files, folders or globs; without any the shipped ones"
    )
    runbook: RunbookUrl | None = Field(
        None, description="address of the runbook of rules that have none; {alert} is the alert"
    )
    overrides: tuple[dict[str, Any], ...] = Field(
        (), description="what rules are in some pools, or in all of them"
    )


def with_rule_files(root: Entries) -> None:
    """Read a list of rules as their ``files``."""
    place, node = root.entries.get("rules", (None, None))
    if place is not None and isinstance(node, Items):
        root.entries["rules"] = place, Entries(node.place, {"files": (place, node)})
