"""What ``driftwatch run`` needs besides a configuration that parses: sources, files it can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings import (
    PrometheusSource,
    RecordingSource,
    Settings,
)
from driftwatch.settings.problems import without_secrets
from driftwatch.settings.values import read_of, read_url_of
from driftwatch.yaml_models import Part, place_of
from driftwatch.yaml_positions import Entries, read_yaml

Location = tuple[int | str, ...]


def unmet(settings: Settings, path: Path) -> list[Problem]:
    """Every file that the configuration names and that cannot be used, and what else is missing.

    Args:
        settings: as loaded from ``path``.

    Returns:
        errors at their place in the file, and warnings: without a source or a receiver it says
        too little to be of use, but nothing is wrong.
    """
    file = read_yaml(path)
    root = file.root
    for location, reader in _files(settings):
        reason = _why_not(reader)
        if reason is not None and isinstance(root, Entries):
            file.add(place_of(root, location), "file", reason)
    problems = [without_secrets(problem) for problem in file.problems]
    if not settings.sources:
        help_text = "sources: [{pages: [http://host:8000/metrics]}]"
        problems.append(_warning(path, "no-sources", "no sources: nothing is watched", help_text))
    if not settings.receivers:
        help_text = "receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]"
        problems.append(
            _warning(path, "no-receivers", "no receivers: nobody gets a page", help_text)
        )
    return problems


def receiver_files(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Receiver name → why a secret of it cannot be read, None where all can."""
    for number, receiver in enumerate(settings.receivers):
        reasons = (_why_not(reader) for reader in _of_receiver(settings, number).values())
        yield receiver.name, next((reason for reason in reasons if reason is not None), None)


def _files(settings: Settings) -> Iterator[tuple[Location, Callable[[], object]]]:
    """Where a file is named, and how it is read."""
    for i, source in enumerate(settings.sources):
        if isinstance(source, RecordingSource):
            recording = source.recording
            yield ("sources", i, "recording"), _readable(recording, folder_too=True)
        elif isinstance(source, PrometheusSource):
            if source.ca_file is not None:
                yield ("sources", i, "ca_file"), _readable(source.ca_file)
            if source.bearer_token_file is not None:
                yield ("sources", i, "bearer_token_file"), source.read_bearer_token
            if source.basic_auth is not None and source.basic_auth.password_file is not None:
                location = ("sources", i, "basic_auth", "password_file")
                yield location, source.basic_auth.read_password
    for i, pool in enumerate(settings.pools):
        if pool.serving.startup_log is not None:
            yield ("pools", i, "serving", "startup_log"), _readable(pool.serving.startup_log)
    for i in range(len(settings.receivers)):
        yield from _of_receiver(settings, i).items()
    if settings.heartbeat is not None:
        yield from _of_part(settings.heartbeat, ("heartbeat",))
    if settings.database_password_file is not None:
        reader = partial(read_of, None, settings.database_password_file)
        yield ("database_password_file",), reader


def _of_receiver(settings: Settings, number: int) -> dict[Location, Callable[[], object]]:
    receiver = settings.receivers[number]
    part = getattr(receiver, receiver.kind)
    return dict(_of_part(part, ("receivers", number, receiver.kind)))


def _of_part(part: Part, at: Location) -> Iterator[tuple[Location, Callable[[], object]]]:
    """Fields that end in ``_file``, and how each is read: by their name, so that every kind of
    receiver has its files checked.
    """
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Part):
            yield from _of_part(value, (*at, name))
        elif isinstance(value, Path) and name == "ca_file":
            yield (*at, name), _readable(value)
        elif isinstance(value, Path):
            reader = read_url_of if name.endswith("url_file") else read_of
            yield (*at, name), partial(reader, None, value)


def _readable(path: Path, *, folder_too: bool = False) -> Callable[[], object]:
    """Open it, read one byte (a folder that may be one: list it)."""

    def reader() -> object:
        if folder_too and path.is_dir():
            return next(path.iterdir(), None)
        with path.open("rb") as opened:
            return opened.read(1)

    return reader


def _why_not(reader: Callable[[], object]) -> str | None:
    try:
        reader()
    except ConfigError as error:
        problem = error.problems[0]
        return f"{problem.path}: {problem.message}"
    except OSError as error:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return None


def _warning(path: Path, code: str, message: str, help_text: str) -> Problem:
    return Problem(str(path), None, None, code, message, help_text, severity="warning")
