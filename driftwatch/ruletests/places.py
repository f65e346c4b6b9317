"""Places inside a test file, for problems that are no matter of form."""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.yaml_models import Location, node_at, place_of
from driftwatch.yaml_positions import Entries, Node, Place, Scalar, YamlFile


@dataclass(frozen=True, slots=True)
class Places:
    """A part of a file, by the location of its mapping."""

    file: YamlFile
    root: Entries
    begin: Location

    def at(self, *location: str | int) -> Place:
        """Of a value, its key, or the nearest thing above it."""
        return place_of(self.root, (*self.begin, *location))

    def key(self, *location: str | int) -> Place:
        """Of a key."""
        return place_of(self.root, (*self.begin, *location), to_key=True)

    def line_of(self, *location: str | int) -> int:
        """Where a mapping begins."""
        return self.at(*location).line

    def node(self, *location: str | int) -> Node | None:
        """What stands there; None where nothing does."""
        return node_at(self.root, (*self.begin, *location))

    def add(
        self, location: Location, code: str, message: str, help_text: str | None = None
    ) -> None:
        """Note a problem."""
        self.file.add(self.at(*location), code, message, help_text)

    def add_to_key(
        self, location: Location, code: str, message: str, help_text: str | None = None
    ) -> None:
        """Note a problem of a key."""
        self.file.add(self.key(*location), code, message, help_text)

    def add_inside(
        self,
        location: Location,
        span: tuple[int, int],
        code: str,
        message: str,
        help_text: str | None = None,
    ) -> None:
        """Note a problem of a part of a text: where it starts (from 0), how long it is."""
        node = self.node(*location)
        if isinstance(node, Scalar):
            if not isinstance(node.value, str):  # a plain word that YAML took for a number
                place = Place(node.place.line, node.place.column + span[0], span[1])
            else:
                place = self.file.inside(node, 1, span[0] + 1, span[1])
            self.file.add(place, code, message, help_text)
        else:
            self.add(location, code, message, help_text)
