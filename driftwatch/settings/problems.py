"""Problems of a configuration: names that no receiver has, and no secret in any of them."""

from __future__ import annotations

import re
from dataclasses import replace

from driftwatch.errors import Problem
from driftwatch.yaml_models import node_at
from driftwatch.yaml_positions import Entries, Items, Scalar, YamlFile

# Keys whose values may be secret, and anything that looks like a URL. A count of tokens is none,
# nor is the name of a file.
_KEY = (
    r"(?i)(?<![\w-])(?![\w-]*(?:tokens|_file)[\"']?\s*:)"
    r"[\w-]*(?:password|passwd|secret|token|url|key|auth)[\w-]*[\"']?\s*:\s*"
)
_SECRET_KEY = re.compile(_KEY + r"[\"'\[]?$")
_SECRET_VALUE = re.compile(_KEY + r"[\"'\[]?[^\s\[{\"']")
_URL = re.compile(r"(?i)\w+://\S")


def checked_receivers(file: YamlFile, root: Entries) -> None:
    """Note names under ``report.receivers`` that no receiver has."""
    receivers, wanted = node_at(root, ("receivers",)), node_at(root, ("report", "receivers"))
    there = receivers.items if isinstance(receivers, Items) else ()
    nodes = [node_at(one, ("name",)) for one in there]
    names = [node.value for node in nodes if isinstance(node, Scalar)]
    for item in wanted.items if isinstance(wanted, Items) else ():
        if isinstance(item, Scalar) and item.value not in names:
            named = ", ".join(str(name) for name in names) or "there is none"
            file.add(item.place, "unknown-receiver", f"no receiver {item.value!r} ({named})")


def without_secrets(problem: Problem) -> Problem:
    """The problem with no more of its source line than is needed and no secret in it.

    The line ends behind the caret. A marked secret becomes ``<secret>``; where one stands before
    the caret, the line is left out.
    """
    line = problem.source_line
    if line is None:
        return problem
    start = (problem.column or 1) - 1
    end = start + problem.length
    before, marked, after = line[:start], line[start:end], line[end:]
    # Of a line that could not be parsed nobody knows which part is a value.
    unparsed = problem.code == "yaml" and ":" in before
    if unparsed or _SECRET_VALUE.search(before) or _URL.search(before):
        return replace(problem, source_line=None)
    if _SECRET_KEY.search(before) or _URL.search(marked):
        marked = "<secret>"
    tail = (": …" if after.startswith(":") else " …") if after.strip(" :,]}") else ""
    return replace(problem, source_line=before + marked + tail, length=len(marked))
