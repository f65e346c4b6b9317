"""vLLM's arguments that a configuration names."""

from __future__ import annotations

from pathlib import Path

from driftwatch.errors import Problem
from driftwatch.settings import Settings
from driftwatch.vllm_arguments.check import check, check_text, in_order, whole
from driftwatch.yaml_models import node_at
from driftwatch.yaml_positions import Entries, Items, Scalar, read_yaml


def configured_argument_problems(settings: Settings, path: Path) -> tuple[Problem, ...]:
    """Every problem of ``pools[].serving.arguments``; ``settings``: as loaded from ``path``."""
    file = read_yaml(path)
    for number in range(len(settings.pools)):
        location = ("pools", number, "serving", "arguments")
        node = node_at(file.root, location) if isinstance(file.root, Entries) else None
        if isinstance(node, Scalar):
            check_text(node, file)
        elif isinstance(node, Items):
            check([whole(one) for one in node.items if isinstance(one, Scalar)], file)
    return in_order(file)
