"""Problems of a configuration: names that no receiver has, and no secret in any of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from driftwatch.errors import Problem
from driftwatch.settings.routes import RouteSettings, never_reached
from driftwatch.yaml_models import near, node_at, place_of
from driftwatch.yaml_positions import Entries, Items, Node, Scalar, YamlFile

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
    """Note every name in the place of a receiver's that no receiver has."""
    there = [node_at(one, ("name",)) for one in _items(node_at(root, ("receivers",)))]
    names = {str(node.value) for node in there if isinstance(node, Scalar)}
    for wanted in _wanted(root):
        if isinstance(wanted, Scalar) and wanted.value is not None and wanted.value not in names:
            text = str(wanted.value)
            choice = f"receivers: {', '.join(sorted(names))}" if names else "there is none"
            message = f"there is no receiver {text}"
            file.add(wanted.place, "unknown-receiver", message, near(text, names) or choice)


def _wanted(root: Entries) -> Iterator[Node | None]:
    """The nodes that are names of receivers."""
    yield node_at(root, ("fallback_receiver",))
    yield from _items(node_at(root, ("report", "receivers")))
    for pool in _items(node_at(root, ("pools",))):
        yield from _items(node_at(pool, ("receivers",)))
    for route in _items(node_at(root, ("routes",))):
        yield from _items(node_at(route, ("receivers",)))


def _items(node: Node | None) -> Sequence[Node]:
    return node.items if isinstance(node, Items) else ()


def checked_routes(file: YamlFile, root: Entries, routes: Sequence[RouteSettings]) -> None:
    """Note every route that no incident reaches; once where one takes everything before the end."""
    unreached = never_reached(routes)
    for position, taker in unreached.items():
        if routes[taker].matchers:
            line = place_of(root, ("routes", taker)).line
            message = f"no incident reaches this route: route {taker + 1} in line {line} takes them"
            file.add(place_of(root, ("routes", position)), "unreachable-route", message)
    first = next((at for at, route in enumerate(routes) if not route.matchers), len(routes))
    after = len(routes) - first - 1
    if after > 0:
        words = f"{after} route" + ("s" if after > 1 else "")
        message = f"this route takes every incident: none reaches the {words} after it"
        place = place_of(root, ("routes", first))
        file.add(place, "unreachable-route", message, "put it last, or give it matchers")


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
