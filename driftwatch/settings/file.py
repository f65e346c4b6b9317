"""The whole configuration file, read with every problem of it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from driftwatch.database_place import Place, SqliteFile, place_of
from driftwatch.errors import ConfigError, Problem, StoreError
from driftwatch.settings.pools import PoolSettings
from driftwatch.settings.problems import checked_receivers, without_secrets
from driftwatch.settings.receivers import ReceiverSettings, takes
from driftwatch.settings.service import (
    HeartbeatSettings,
    Listen,
    ReportSettings,
    RuleSettings,
    WebSettings,
    listen_address,
    with_rule_files,
)
from driftwatch.settings.sources import SourceSettings
from driftwatch.settings.values import File, Seconds, Url, below
from driftwatch.yaml_gaps import without_follow_ups
from driftwatch.yaml_models import Part, fault, note_duplicates
from driftwatch.yaml_partly import read_right
from driftwatch.yaml_positions import Entries, YamlFile, plain, read_yaml

ENVIRONMENT = {"DRIFTWATCH_DATABASE": "database", "DRIFTWATCH_LISTEN": "listen"}


def _database(value: object, info: ValidationInfo) -> Path | str:
    """A file, relative to the configuration's folder, or a URL without a password."""
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError("database is the path of a SQLite file, or a postgresql:// URL")
    try:
        place = place_of(value)
    except StoreError as error:
        raise ValueError("; ".join(filter(None, (error.message, error.help_text)))) from None
    return below(place.path, info) if isinstance(place, SqliteFile) else place.typed


Database = Annotated[
    Path | str, PlainValidator(_database), WithJsonSchema({"type": "string", "format": "path"})
]


class Settings(Part):
    """The whole configuration file."""

    INSTEAD: ClassVar[Mapping[str, tuple[str, str]]] = {
        "routes": ("receivers", "each has its severities; a rule or a pool names receivers"),
        "fallback_receiver": ("receivers", "severities: [page, ticket] of one of them"),
        "time_intervals": ("", "leave it out: PagerDuty and Alertmanager mute by time"),
        "shards": ("", "leave it out: on PostgreSQL several driftwatch run share the pools"),
        "batches": ("", "leave it out: the database has 16 on PostgreSQL and 1 on SQLite"),
    }

    sources: tuple[SourceSettings, ...] = Field((), description="where scrapes come from")
    interval: Seconds = Field(15.0, description="time between two ticks")
    pools: tuple[PoolSettings, ...] = Field(
        (), description="pools of servers, with their settings and targets"
    )
    pool_by: tuple[str, ...] = Field(
        ("namespace", "model_name"),
        min_length=1,
        description="labels that make a pool where none of pools matches",
    )
    receivers: tuple[ReceiverSettings, ...] = Field((), description="receivers of pages")
    rules: RuleSettings = Field(
        default_factory=lambda: RuleSettings.model_validate({}),
        description="rule files, or files and overrides",
    )
    database: Database = Field(
        Path("driftwatch.db"),
        validate_default=True,
        description="SQLite file of the incidents, or postgresql://USER@HOST/NAME",
    )
    database_password_file: File | None = Field(
        None, description="file with the password of a PostgreSQL database"
    )
    listen: Listen = Field("127.0.0.1:9095", description="address of its own /metrics")
    external_url: Url | None = Field(
        None, description="URL of the web that people reach; pages link to their incident there"
    )
    web: WebSettings | None = Field(None, description="the pages of driftwatch web")
    report: ReportSettings | None = Field(
        None, description="the weekly report; without it none is sent"
    )
    heartbeat: HeartbeatSettings | None = Field(
        None, description="an outside service that alerts when heartbeats stop"
    )
    # the file, for problems that only its rules bring
    _file: YamlFile | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_report(self) -> Self:
        forms = {one.name: one.form for one in self.receivers}
        for position, name in enumerate(() if self.report is None else self.report.receivers):
            if name in forms and not takes(forms[name], "report"):
                message = f"{name} takes no reports: it is of the kind {forms[name]}"
                inner = ("report", "receivers", position)
                raise fault("not-allowed", message, "leave it out", inner=inner)
        return self

    @property
    def file(self) -> YamlFile | None:
        """The file that they were read from, without problems."""
        return self._file

    @property
    def database_place(self) -> Place:
        """Where the database is, and where its password."""
        return place_of(self.database, self.database_password_file)

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port of ``listen``; brackets of an IPv6 address are taken off."""
        return listen_address(self.listen)


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
        with_rule_files(root)
        values: Any = plain(root)
        environ = os.environ if environ is None else environ
        context = {"base": Path(path).resolve().parent}
        overrides = {n: k for n, k in ENVIRONMENT.items() if environ.get(n)}
        for name, key in overrides.items():
            values[key] = environ[name]
            root.entries.pop(key, None)  # its own value is not looked at
        of_environment = {k: n for n, k in overrides.items()}
        settings = read_right(
            file, root, Settings, values, context=context, environment=of_environment
        )
    if settings is not None:
        settings._file = file
    if settings is None or file.problems:
        ordered = sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))
        ordered = without_follow_ups(ordered, file.left_out)
        raise ConfigError(tuple(without_secrets(problem) for problem in ordered), settings)
    return settings
