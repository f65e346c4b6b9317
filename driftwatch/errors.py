"""The whole error tree of driftwatch.

```
DriftwatchError
├── UsageError            the command line asks for what cannot be
├── NoVerdict             what was asked cannot be known from this input
├── ConfigError           a configuration or rule file; carries every problem of the file
├── ConditionError        a condition is not a whitelisted predicate (position inside its text)
├── SourceError           a source gave no usable answer
│   ├── Unavailable       no answer: refused, timed out, 5xx
│   ├── AuthFailed        401, 403
│   ├── BadQuery          400, 422: the backend refused the question
│   ├── TooExpensive      over a limit of points, bytes or time
│   ├── Partial           answered with warnings: some of it is missing
│   └── BadPage           answered, but not with what was asked for (HTML, cut off, too large)
├── RecordingError        a recording cannot be read at all
├── ImpossibleConfiguration  scheduler settings that vLLM would refuse, or requests that never fit
├── WorkloadError         a request log or trace cannot be read as requests
├── DocumentError         a stored document is not of the form that this version reads
├── StoreError            the database is locked, full, read-only or of another version
└── DeliveryError         a receiver did not take a page
```

A class docstring is its default message; details are attributes, never parsed from text.
"""

from __future__ import annotations

from dataclasses import dataclass


class DriftwatchError(Exception):
    """driftwatch could not do what was asked."""

    def __init__(self, message: str | None = None, *, help_text: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.help_text = help_text
        super().__init__(self.message)


class UsageError(DriftwatchError):
    """The command line asks for something that cannot be answered."""


class NoVerdict(DriftwatchError):
    """What was asked cannot be known from this input."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem at one place of a file the user wrote."""

    path: str  # file as the user named it
    line: int | None  # 1-based line, or None where the whole file is meant
    column: int | None  # 1-based column
    code: str  # short stable name, e.g. ``unknown-column``
    message: str  # what is wrong
    help_text: str | None = None  # what would fix it, if known
    source_line: str | None = None  # the text of the line, for the caret
    length: int = 1  # how many characters the caret underlines
    severity: str = "error"  # ``error`` or ``warning``


class ConfigError(DriftwatchError):
    """A configuration or rule file has problems.

    ``readable``: the settings without what is wrong, so that the rest can be checked; None = too
    little is right.
    """

    def __init__(self, problems: tuple[Problem, ...], readable: object = None) -> None:
        self.problems, self.readable = problems, readable
        super().__init__("; ".join(f"{p.path}:{p.line}:{p.column}: {p.message}" for p in problems))


class ConditionError(DriftwatchError):
    """A condition is not a predicate over the evidence table.

    ``others``: what else is wrong in it, where that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        line: int,
        column: int,
        length: int = 1,
        help_text: str | None = None,
        others: tuple[ConditionError, ...] = (),
    ) -> None:
        self.others = others
        self.code = code
        self.line = line
        self.column = column
        self.length = length
        super().__init__(message, help_text=help_text)


class SourceError(DriftwatchError):
    """A source gave no usable answer."""


class Unavailable(SourceError):
    """The source did not answer."""


class AuthFailed(SourceError):
    """The source refused the credentials."""


class BadQuery(SourceError):
    """The source refused the question."""


class TooExpensive(SourceError):
    """The answer is over a limit of points, bytes or time."""


class Partial(SourceError):
    """The answer is incomplete."""


class BadPage(SourceError):
    """The source answered with something else than a metrics page."""


class RecordingError(DriftwatchError):
    """The recording cannot be read."""


class ImpossibleConfiguration(DriftwatchError):
    """The scheduler settings cannot be.

    ``problems`` names each of them.
    """

    def __init__(self, problems: tuple[str, ...], *, help_text: str | None = None) -> None:
        self.problems = problems
        super().__init__("; ".join(problems), help_text=help_text)


class WorkloadError(DriftwatchError):
    """The requests cannot be read.

    ``problems`` names each of them, with its place in the file.
    """

    def __init__(self, problems: tuple[str, ...], *, help_text: str | None = None) -> None:
        self.problems = problems
        super().__init__("; ".join(problems), help_text=help_text)


class DocumentError(DriftwatchError):
    """A stored document is not of the form that this version reads."""


class StoreError(DriftwatchError):
    """The database cannot be used.

    ``code`` is one of missing, locked, read-only, full, corrupt, other-schema, older-schema,
    foreign, unsupported, in-use, tick-lost, unusable; of a server also unreachable, denied, busy,
    timeout, conflict.
    """

    def __init__(
        self,
        message: str = "The database cannot be used.",
        *,
        code: str = "unusable",
        help_text: str | None = None,
    ) -> None:
        self.code = code
        super().__init__(message, help_text=help_text)


class DeliveryError(DriftwatchError):
    """A receiver did not take the page."""

    def __init__(
        self, message: str, *, permanent: bool, retry_after_seconds: float | None = None
    ) -> None:
        self.permanent = permanent
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)
