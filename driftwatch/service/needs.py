"""What ``driftwatch run`` needs besides a configuration that parses: sources, files it can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings import (
    Settings,
)
from driftwatch.settings.problems import without_secrets
from driftwatch.settings.secret_files import NO_SECRET, Location, named_files
from driftwatch.settings.values import read_of, read_url_of
from driftwatch.vllm_arguments.check import check_text, check_words
from driftwatch.yaml_models import node_at, place_of
from driftwatch.yaml_positions import Entries, Items, Scalar, YamlFile, read_yaml


def unmet(settings: Settings, path: Path) -> list[Problem]:
    """Every file that the configuration names and that cannot be used, and what else is missing.

    Args:
        settings: as loaded from ``path``.

    Returns:
        errors at their place in the file, and warnings: without a source or a receiver it says
        too little to be of use, but nothing is wrong.
    """
    file = _file(settings, path)
    root = file.root
    for location, named in named_files(settings):
        # the web is another process, on a machine that may have other files
        reason = None if location[0] == "web" else _why_not(location, named)
        if reason is not None and isinstance(root, Entries):
            file.add(place_of(root, location), "file", reason)
    for number, pool in enumerate(settings.pools):
        for earlier in settings.pools[:number]:
            if earlier.match.items() <= pool.match.items() and isinstance(root, Entries):
                message = f"no server is ever in {pool.name}: {earlier.name} above matches all"
                place = place_of(root, ("pools", number, "name"))
                file.add(place, "shadowed", message, "put the narrower pool first", "warning")
                break
        for name, longest in LONGEST_TARGETS.items():
            value = getattr(pool.slo, name, None)
            if value is not None and value > longest and isinstance(root, Entries):
                message = f"{value:g} s{_in_minutes(value)} is a long target: milliseconds?"
                place = place_of(root, ("pools", number, "slo", name))
                file.add(
                    place, "unit", message, f"for {value:g} ms write {value / 1000:g}", "warning"
                )
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


def _file(settings: Settings, path: Path) -> YamlFile:
    """Where problems are noted: reading it told its own ones already."""
    return replace(settings.file or read_yaml(path), problems=[])


# Seconds; who waits so long for a first token, or for each further one, has no target.
LONGEST_TARGETS = {"ttft_seconds": 60.0, "tpot_seconds": 1.0}


def _in_minutes(seconds: float) -> str:
    return f" ({seconds / 60:.3g} min)" if seconds >= 120 else ""


def receiver_files(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Receiver name → why a secret of it cannot be read, None where all can."""
    for receiver in settings.receivers:
        reasons = (_why_not(*each) for each in named_files(receiver))
        yield receiver.name, next((reason for reason in reasons if reason is not None), None)


def _why_not(location: Location, path: Path) -> str | None:
    name = str(location[-1])
    try:
        if name == "recording" and path.is_dir():
            next(path.iterdir(), None)
        elif name in NO_SECRET:
            with path.open("rb") as opened:
                opened.read(1)
        elif name.endswith("url_file"):
            read_url_of(None, path)
        else:
            read_of(None, path)
    except ConfigError as error:
        problem = error.problems[0]
        return f"{problem.path}: {problem.message}"
    except OSError as error:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return None


def _warning(path: Path, code: str, message: str, help_text: str) -> Problem:
    return Problem(str(path), None, None, code, message, help_text, severity="warning")


def configured_argument_problems(settings: Settings, path: Path) -> tuple[Problem, ...]:
    """Every problem of ``pools[].serving.arguments``; ``settings``: as loaded from ``path``."""
    file = _file(settings, path)
    for number in range(len(settings.pools)):
        location = ("pools", number, "serving", "arguments")
        node = node_at(file.root, location) if isinstance(file.root, Entries) else None
        if isinstance(node, Scalar):
            check_text(str(node.value), node.place, file)
        elif isinstance(node, Items):
            words = [one for one in node.items if isinstance(one, Scalar)]
            texts = [w.value if isinstance(w.value, str) else w.raw for w in words]
            check_words(texts, [one.place for one in words], file)
    return tuple(file.problems)
