"""The whole configuration file, read with every problem of it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
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
from driftwatch.settings.sources import SourceSettings
from driftwatch.settings.values import (
    File,
    Names,
    Seconds,
    SecretUrl,
    Url,
    WithSecrets,
    below,
    http_url,
    one_of,
)
from driftwatch.yaml_models import Part, fault, note_duplicates
from driftwatch.yaml_partly import read_right
from driftwatch.yaml_positions import Entries, Items, YamlFile, plain, read_yaml


def _runbook(text: str) -> str:
    http_url(text.replace("{alert}", "alert"))
    return text


RunbookUrl = Annotated[str, AfterValidator(_runbook)]


class RuleSettings(Part):
    """``rules:`` of the configuration.

    Overrides are read one by one beside the rules that they name (``rulebook.overrides``).
    """

    files: tuple[File, ...] = Field(
        (), description="rule files, folders or globs; without any the shipped ones"
    )
    runbook: RunbookUrl | None = Field(
        None, description="address of the runbook of rules that have none; {alert} is the alert"
    )
    overrides: tuple[dict[str, Any], ...] = Field(
        (), description="what rules are in some pools, or in all of them"
    )


def with_rule_files(root: Entries) -> None:
    """Read a list of rules as their ``files``."""
    place, node = root.entries.get("rules", (None, None))
    if place is not None and isinstance(node, Items):
        root.entries["rules"] = place, Entries(node.place, {"files": (place, node)})


class ReportSettings(Part):
    """Receivers of the weekly report, made on Mondays at 07:00 UTC."""

    receivers: Names = Field(
        (), description="names of the receivers that get it; without any all of them"
    )


class HeartbeatSettings(WithSecrets):
    """The URL that gets a heartbeat every minute."""

    url: SecretUrl | None = Field(None, description="URL that is pinged; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        return self


def checked_listen(value: object) -> str:
    """A host and a port; an IPv6 address in brackets."""
    text = str(value)
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("an address to listen on is host:port, such as 127.0.0.1:9095")
    return text


def listen_address(listen: str) -> tuple[str, int]:
    """Host and port; brackets of an IPv6 address are taken off."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError:
        raise ValueError("an address or network, such as 10.0.0.7 or 10.0.0.0/24") from None


Listen = Annotated[str, BeforeValidator(checked_listen)]
Network = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string"})
]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]


class ProxySettings(Part):
    """A proxy that signs people in and sends their names."""

    addresses: tuple[Network, ...] = Field(
        min_length=1,
        description="addresses of the proxy; the header of any other client is ignored",
    )
    header: HeaderName = Field("X-Forwarded-User", description="the header with the person's name")


class WebSettings(Part):
    """The pages of ``driftwatch web``."""

    listen: Listen = Field("127.0.0.1:9096", description="address of the pages")
    token_file: File | None = Field(
        None, description="file with the token of those who may act; without it nobody signs in"
    )
    proxy: ProxySettings | None = Field(
        None, description="a proxy that names the person in a header"
    )


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
        raise ConfigError(tuple(without_secrets(problem) for problem in ordered), settings)
    return settings
