"""The change that an incident's page advises, as people type it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from driftwatch.model import KnobMove
from driftwatch.recommend.change_text import helm_values_diff, kubectl_patch, vllm_arguments
from driftwatch.web.page import Part


class ChangeTexts(Part):
    """The same change in three forms, each a text to copy."""

    vllm_arguments: str
    helm_values_diff: str = Field(description="of vLLM's production stack")
    kubectl_patch: str
    undo: str | None


def change_texts(page: Mapping[str, Any]) -> ChangeTexts | None:
    """Of a page's recommendation; None where it changes no setting.

    ``page``: its JSON (:mod:`driftwatch.notify.page`).
    """
    answer = page.get("recommendation") or {}
    if answer.get("action") != "change" or answer.get("knob") is None:
        return None
    moves = [_move(one) for one in (answer, *(answer.get("also") or ()))]
    target = page.get("target") or {}
    return ChangeTexts(
        vllm_arguments=" ".join(vllm_arguments(moves)),
        helm_values_diff="\n".join(helm_values_diff(moves, target.get("model_name"))),
        kubectl_patch=kubectl_patch(moves, target.get("namespace")),
        undo=answer.get("undo"),
    )


def _move(entry: Mapping[str, Any]) -> KnobMove:
    return KnobMove(entry["knob"], entry["from"], entry["to"], entry.get("from_provenance"))
