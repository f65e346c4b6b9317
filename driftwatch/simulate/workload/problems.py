"""What is wrong with a file of requests: the first problems by line, the rest counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.errors import WorkloadError

NAMED = 20  # problems that are spelt out; of a broken file of 10^7 lines the rest is a count


class Problems:
    """Collects problems of one file in bounded memory.

    Attributes:
        path: the file as the user named it.
        unit: what is counted in it, ``line`` or ``row`` (Parquet has no lines).
    """

    def __init__(self, path: str, unit: str = "line") -> None:
        self.path = path
        self.unit = unit
        self._named: list[tuple[int, str]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, line: int, message: str) -> None:
        """One problem at one line."""
        self._count += 1
        if len(self._named) < NAMED:
            self._named.append((line, message))

    def add_all(self, lines: npt.NDArray[np.int64], messages: list[str]) -> None:
        """Many problems, in any order; ``messages`` may stop after the first ``NAMED``."""
        self._count += len(lines)
        self._named += zip(lines.tolist()[:NAMED], messages, strict=False)

    def sort(self) -> None:
        """Keep the first by line; called between blocks, which come in order."""
        self._named = sorted(self._named, key=lambda one: one[0])[:NAMED]

    def texts(self) -> tuple[str, ...]:
        """``path:line: what``, and how many more there are."""
        self.sort()
        where = ":" if self.unit == "line" else f":{self.unit} "
        found = [f"{self.path}{where}{line}: {message}" for line, message in self._named]
        if self._count > len(found):
            found.append(f"{self.path}: and {self._count - len(found):,} more")
        return tuple(found)

    def raise_any(self, *, help_text: str | None = None) -> None:
        """End here where something was wrong.

        Raises:
            WorkloadError: with every named problem and the count of the rest.
        """
        if self:
            raise WorkloadError(self.texts(), help_text=help_text)
