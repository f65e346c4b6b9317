"""Reading the fields of one mapping of a file; every problem is noted, none is raised."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from driftwatch.condition import Condition, parse_condition
from driftwatch.durations import parse_duration
from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME
from driftwatch.yaml_positions import Entries, Items, Node, Place, Scalar, YamlFile


def near(name: str, options: Collection[str]) -> str | None:
    """A did-you-mean, or None."""
    close = difflib.get_close_matches(name, sorted(options), n=1)
    return f"did you mean {close[0]}?" if close else None


def entries_of(file: YamlFile, node: Node, what: str) -> Entries | None:
    """The node as a mapping; a problem and None where it is none."""
    if isinstance(node, Entries):
        return node
    file.add(node.place, "type", f"{what} wants keys and values")
    return None


def items_of(file: YamlFile, node: Node, what: str) -> tuple[Node, ...]:
    """The node's items; a problem and none where it is no sequence."""
    if isinstance(node, Items):
        return node.items
    file.add(node.place, "type", f"{what} wants a list")
    return ()


class Fields:
    """One mapping, read key by key.

    Args:
        file: where it stands; problems are noted there.
        node: the mapping.
        what: what it is, for messages ("rule BatchDrift").
        place: what a missing key points at.
    """

    def __init__(self, file: YamlFile, node: Entries, what: str, place: Place) -> None:
        self.file = file
        self.node = node
        self.what = what
        self.place = place

    def allow(self, names: Collection[str], instead: Mapping[str, str] | None = None) -> None:
        """Note every key that is not among ``names``; ``instead`` helps with expected slips."""
        for name, (place, _) in self.node.entries.items():
            if name not in names:
                help_text = (instead or {}).get(name) or near(name, names)
                help_text = help_text or f"known keys: {', '.join(names)}"
                self.file.add(place, "unknown-key", f"unknown key {name}", help_text)

    def get(self, name: str, *, required: bool = False) -> Node | None:
        """The value of a key, None where it is absent or null."""
        entry = self.node.entries.get(name)
        if entry is not None and not (isinstance(entry[1], Scalar) and entry[1].value is None):
            return entry[1]
        if required:
            place = entry[0] if entry else self.place
            self.file.add(place, "missing-key", f"{self.what} has no {name}")
        return None

    def problem(
        self,
        name: str,
        code: str,
        message: str,
        help_text: str | None = None,
        *,
        inner: str | None = None,
    ) -> None:
        """Note a problem at the value of a key (at its owner where there is none).

        ``inner`` is the item or key inside the value that is meant.
        """
        entry = self.node.entries.get(name)
        place = entry[1].place if entry else self.place
        value = entry[1] if entry else None
        if isinstance(value, Entries) and inner in value.entries:
            place = value.entries[inner][0]
        elif isinstance(value, Items):
            items = (i.place for i in value.items if isinstance(i, Scalar) and i.value == inner)
            place = next(items, place)
        self.file.add(place, code, message, help_text)

    def text(self, name: str, *, required: bool = False) -> str | None:
        """A text value."""
        node = self.get(name, required=required)
        return None if node is None else self._text(node, name)

    def choice(self, name: str, options: Collection[str], *, required: bool = False) -> str | None:
        """A text value out of a few."""
        value = self.text(name, required=required)
        if value is None or value in options:
            return value
        message = f"{name} is one of {', '.join(options)}, not {value}"
        self.problem(name, "value", message, near(value, options))
        return None

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        node = self.get(name)
        if node is None:
            return default
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.file.add(node.place, "type", f"{name} is true or false")
        return default

    def number(self, name: str, default: float) -> float:
        """A number, the default where there is none."""
        node = self.get(name)
        if node is None:
            return default
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        self.file.add(node.place, "type", f"{name} is a number")
        return default

    def seconds(self, name: str) -> float:
        """A duration, 0 where there is none."""
        node = self.get(name)
        if node is None:
            return 0.0
        if isinstance(node, Scalar) and not isinstance(node.value, bool):
            try:
                return parse_duration(str(node.value))
            except ValueError as error:
                self.file.add(node.place, "duration", str(error))
                return 0.0
        self.file.add(node.place, "duration", f"{name} is a duration such as 5m")
        return 0.0

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of names to texts."""
        node = self.get(name)
        if node is None or (entries := entries_of(self.file, node, name)) is None:
            return {}
        texts = {}
        for key, (_, value) in entries.entries.items():
            text = self._text(value, f"{name}.{key}")
            if text is not None:
                texts[key] = text
        return texts

    def names(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        node = self.get(name)
        if node is None:
            return ()
        texts = (self._text(item, name) for item in items_of(self.file, node, name))
        return tuple(text for text in texts if text is not None)

    def condition(
        self, name: str, false_when_unknown: Collection[str] = (), *, required: bool = True
    ) -> Condition | None:
        """A predicate; its problem is noted at its place in the file."""
        node = self.get(name, required=required)
        if node is None:
            return None
        if not isinstance(node, Scalar):
            self.file.add(node.place, "type", f"{name} is a condition such as scrapes > 1")
            return None
        text = str(node.raw if not isinstance(node.value, str) else node.value).rstrip()
        try:
            condition = parse_condition(
                text, columns=BY_NAME, false_when_unknown=false_when_unknown
            )
            if condition.columns:
                return condition
            help_text = "name an evidence column: driftwatch evidence"
            self.file.add(node.place, "constant", f"{name} reads no column", help_text)
        except ConditionError as error:
            place = self.file.inside(node, error.line, error.column, error.length)
            self.file.add(place, error.code, error.message, error.help_text)
        return None

    def _text(self, node: Node, name: str) -> str | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        help_text = "put it in quotes" if isinstance(node, Scalar) else None
        self.file.add(node.place, "type", f"{name} is text", help_text)
        return None
