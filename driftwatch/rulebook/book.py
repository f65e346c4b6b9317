"""A rulebook: every rule and tree of a set of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.rules import Rule


@dataclass(frozen=True, slots=True)
class Rulebook:
    """What is watched for and how it is explained.

    Attributes:
        rules: in file order; ids are unique. Disabled rules are among them.
        trees: name → tree; every tree a rule names is here.
    """

    rules: tuple[Rule, ...]
    trees: Mapping[str, Tree]
