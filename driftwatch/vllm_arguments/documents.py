"""Other people's YAML with the place of every value: several documents, anchors, tags, merge keys.

driftwatch's own files have none of these (``yaml_positions``); manifests have. An alias is the
node that it names, not a copy. The caps are the same: 1 MiB, 50 levels.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftwatch import yaml_events
from driftwatch.errors import Problem
from driftwatch.yaml_events import Event
from driftwatch.yaml_positions import (
    LINE_BREAK,
    MAX_BYTES,
    Composer,
    Entries,
    Items,
    Node,
    Place,
    Scalar,
    YamlFile,
    compose,
)


class Documents(Composer):
    """Every document of a file, as one sequence."""

    def __init__(self, file: YamlFile, text: str) -> None:
        super().__init__(file, text)
        self.anchors: dict[str, Node] = {}

    def document(self, events: Iterator[Event]) -> Node:
        """All documents."""
        nodes = (event for event in events if isinstance(event, yaml_events.Node))
        roots = [self.node(event, events, 1) for event in nodes]
        return Items(Place(1, 1), tuple(roots))

    def alias(self, event: Event, place: Place) -> Node:
        """The node that the alias names; itself, where it lies inside that node."""
        return self.anchors.get(event.anchor, Scalar(place, None))

    def refuse(self, event: Event, place: Place) -> None:
        """Anchors and tags may stand."""

    def node(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        """One node; kept where it has an anchor."""
        node = super().node(event, events, depth)
        anchor = getattr(event, "anchor", None)
        if anchor and not isinstance(event, yaml_events.Alias):
            self.anchors[str(anchor)] = node
        return node

    def pair(self, mapping: Entries, key: Node, value: Node) -> None:
        """Merge keys are taken; of equal keys the last one counts, as with most readers."""
        if not isinstance(key, Scalar):
            return
        name = key.value if isinstance(key.value, str) else key.raw
        if name != "<<":
            mapping.entries[name] = (key.place, value)
            return
        for other in value.items if isinstance(value, Items) else (value,):
            for inner, entry in other.entries.items() if isinstance(other, Entries) else ():
                mapping.entries.setdefault(inner, entry)


def read_documents(text: str, path: str) -> YamlFile:
    """Every document of a text as the items of ``root``; what is no YAML is a problem."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        message = f"the file is over {MAX_BYTES >> 20} MiB"
        return YamlFile(path, problems=[Problem(path, None, None, "too-large", message)])
    return compose(YamlFile(path, LINE_BREAK.split(text)), text, Documents)
