"""The whole configuration file, read with every problem of it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings.pools import DetectionSettings, PoolSettings
from driftwatch.settings.problems import checked_receivers, without_secrets
from driftwatch.settings.receivers import GpuHourPrice, ReceiverSettings, ReportSettings
from driftwatch.settings.sources import SourceSettings
from driftwatch.settings.values import File, Seconds, Url
from driftwatch.yaml_models import Part, note_duplicates, note_errors
from driftwatch.yaml_positions import Entries, plain, read_yaml

# Two of them: no settings framework is needed for that.
ENVIRONMENT = {"DRIFTWATCH_DATABASE": "database", "DRIFTWATCH_LISTEN": "listen"}


class Settings(Part):
    """The whole configuration file."""

    sources: tuple[SourceSettings, ...] = Field((), description="where scrapes come from")
    interval: Seconds = Field(15.0, description="time between two ticks")
    connect_timeout: Seconds = Field(2.0, description="time to connect to a source")
    read_timeout: Seconds = Field(10.0, description="time for a source to answer")
    pools: tuple[PoolSettings, ...] = Field((), description="what you know of the targets")
    pool_by: tuple[str, ...] = Field(
        ("namespace", "model_name"),
        min_length=1,
        description="labels that make a pool where none of pools matches",
    )
    detection: DetectionSettings = Field(
        default_factory=lambda: DetectionSettings.model_validate({}),
        description="budget of false episodes, holidays",
    )
    receivers: tuple[ReceiverSettings, ...] = Field((), description="who gets pages")
    rules: tuple[File, ...] = Field(
        (), description="rule files, folders or globs; without any the shipped ones"
    )
    database: File = Field(
        Path("driftwatch.db"), validate_default=True, description="SQLite file of the incidents"
    )
    listen: str = Field("127.0.0.1:9095", description="address of its own /metrics")
    retention: Seconds = Field(
        3_600.0, le=10 * 365 * 86_400.0, description="how long raw scrapes are kept"
    )
    external_url: Url | None = Field(None, description="URL that pages link to")
    gpu_hour_price: GpuHourPrice | None = Field(
        None, description="price of a GPU-hour, for the weekly report"
    )
    report: ReportSettings | None = Field(
        None, description="the weekly report; without it none is sent"
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError("listen is host:port, such as 127.0.0.1:9095")
        return text

    @field_validator("database", mode="before")
    @classmethod
    def _check_database(cls, value: object) -> object:
        if isinstance(value, str) and "://" in value:
            raise ValueError("database is the path of a SQLite file")
        return value

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port of ``listen``; brackets of an IPv6 address are taken off."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def load_settings(path: Path | str, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the configuration file.

    ``path``: the YAML file; ``environ``: the environment, this process's by default.

    Raises ConfigError: with every problem, each at its place; no secret is in it.
    """
    file = read_yaml(Path(path))
    root = file.root
    settings = None
    if not Path(path).exists():
        init = f"driftwatch init --prometheus URL -o {path} writes one"
        file.problems = [replace(problem, help_text=init) for problem in file.problems]
    if root is None and not file.problems:
        file.problems.append(Problem(file.path, None, None, "empty", "the file says nothing"))
    elif root is not None and not isinstance(root, Entries):
        file.add(root.place, "type", "a configuration is keys and values")
    elif isinstance(root, Entries):
        note_duplicates(file, root, "pools")
        note_duplicates(file, root, "receivers")
        checked_receivers(file, root)
        values: Any = plain(root)
        environ = os.environ if environ is None else environ
        context = {"base": Path(path).resolve().parent}
        overrides = {n: k for n, k in ENVIRONMENT.items() if environ.get(n)}
        for name, key in overrides.items():
            values[key] = environ[name]
            root.entries.pop(key, None)  # its own value is not looked at
        try:
            settings = Settings.model_validate(values, context=context)
        except ValidationError as error:
            note_errors(file, root, Settings, error, {k: n for n, k in overrides.items()})
    if settings is None or file.problems:
        ordered = sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))
        raise ConfigError(tuple(without_secrets(problem) for problem in ordered))
    return settings
