"""The service configuration: one YAML file, every problem of it at once.

Secrets are read from files at use, or stand in the file and print as ``<secret>``. Relative file
names mean the configuration file's folder. ``DRIFTWATCH_DATABASE`` and ``DRIFTWATCH_LISTEN`` in
the environment go before the file (two of them: no settings framework is needed for that).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from driftwatch.errors import ConfigError, Problem
from driftwatch.model import Severity
from driftwatch.settings_detection import DetectionSettings
from driftwatch.settings_problems import (
    checked_names,
    checked_receivers,
    note_errors,
    without_secrets,
)
from driftwatch.settings_report import GpuHourPrice, ReportSettings
from driftwatch.settings_values import (
    SECRET,
    Count,
    File,
    HeaderText,
    Labels,
    Name,
    Number,
    Part,
    Seconds,
    Secret,
    SecretUrl,
    Text,
    Url,
    one_of,
    read_of,
    read_url_of,
)
from driftwatch.yaml_positions import Entries, plain, read_yaml

ENVIRONMENT = {"DRIFTWATCH_DATABASE": "database", "DRIFTWATCH_LISTEN": "listen"}


class BasicAuth(Part):
    """HTTP basic authentication."""

    username: str = Field(description="user name")
    password: Secret | None = Field(None, description="password; better in a file")
    password_file: File | None = Field(None, description="file that holds the password")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "password", "password_file")
        return self

    def read_password(self) -> str:
        """The password, from its file where it lies in one.

        Raises:
            ConfigError: the file cannot be read.
        """
        return read_of(self.password, self.password_file) or ""


class PrometheusSource(Part):
    """A Prometheus-compatible API."""

    prometheus: Url = Field(description="base URL of the API")
    match: Labels = Field(
        default_factory=dict, description="labels a series must carry to be asked for"
    )
    step: Seconds = Field(15.0, description="distance of the points asked for, as scraped")
    bearer_token_file: File | None = Field(None, description="file that holds a bearer token")
    basic_auth: BasicAuth | None = Field(None, description="user and password")
    tenant: HeaderText | None = Field(
        None, min_length=1, description="sent as X-Scope-OrgID (Mimir, Cortex, Thanos, Loki)"
    )
    ca_file: File | None = Field(None, description="authorities that its certificate is checked by")
    query_timeout: Seconds = Field(15.0, description="for one query, to its last byte")
    budget: Seconds = Field(60.0, description="for all queries of one tick")
    dcgm: bool = Field(True, description="ask for DCGM_* series as well")
    dcgm_match: Labels = Field(
        default_factory=dict, description="labels a DCGM series must carry to be asked for"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "bearer_token_file", "basic_auth", required=False)
        return self

    def read_bearer_token(self) -> str | None:
        """The token, None where none is used.

        Raises:
            ConfigError: the file cannot be read.
        """
        return read_of(None, self.bearer_token_file)


class PagesSource(Part):
    """vLLM ``/metrics`` pages, scraped directly."""

    pages: tuple[Url, ...] = Field(min_length=1, description="URLs of /metrics pages")
    labels: Labels = Field(default_factory=dict, description="labels their targets get")


class DcgmSource(Part):
    """dcgm-exporter ``/metrics`` pages (or those of ``driftwatch agent``), scraped directly."""

    dcgm: tuple[Url, ...] = Field(min_length=1, description="URLs of dcgm-exporter's /metrics")


class NvmlSource(Part):
    """NVML on the machine that driftwatch runs on."""

    nvml: Literal[True] = Field(description="true: read this machine's GPUs")


class RecordingSource(Part):
    """Recorded scrapes."""

    recording: File = Field(description="scrapes.jsonl.gz, or the folder of a recording")
    labels: Labels = Field(default_factory=dict, description="labels its targets get")


def _kind_of_source(value: object) -> str | None:
    """The tag of a source; tags stand in parentheses so that no key can be taken for one."""
    if isinstance(value, Mapping):
        # a Prometheus source has a dcgm switch of its own
        given = [kind for kind in _KINDS if kind in value]
        if "prometheus" in given and "dcgm" in given:
            given.remove("dcgm")
        return f"({given[0]})" if len(given) == 1 else None
    return next((f"({name})" for name, kind in _KINDS.items() if isinstance(value, kind)), None)


_KINDS: Mapping[str, type[Part]] = {
    "prometheus": PrometheusSource,
    "pages": PagesSource,
    "recording": RecordingSource,
    "dcgm": DcgmSource,
    "nvml": NvmlSource,
}


SourceSettings = Annotated[
    Annotated[PrometheusSource, Tag("(prometheus)")]
    | Annotated[PagesSource, Tag("(pages)")]
    | Annotated[RecordingSource, Tag("(recording)")]
    | Annotated[DcgmSource, Tag("(dcgm)")]
    | Annotated[NvmlSource, Tag("(nvml)")],
    Discriminator(
        _kind_of_source,
        custom_error_type="source_kind",
        custom_error_message="a source has exactly one of prometheus, pages, recording, dcgm, nvml",
    ),
]


class ServingSettings(Part):
    """How the pool's servers were started; what is not said here is unknown or read elsewhere."""

    max_num_seqs: Count | None = Field(None, description="sequence cap")
    max_num_batched_tokens: Count | None = Field(None, description="token budget of a step")
    max_num_active_seqs: Count | None = Field(None, description="cap on active sequences")
    max_model_len: Count | None = Field(None, description="longest context in tokens")
    kv_cache_tokens: Count | None = Field(None, description="size of the KV cache in tokens")
    api_server_count: Count | None = Field(None, description="API server processes")
    model: Text | None = Field(None, description="the model, where its served name is another")
    gpu: Text | None = Field(None, description="the kind of GPU, where neither DCGM nor NVML is")
    tensor_parallel: Count | None = Field(None, description="GPUs that share each layer")
    startup_log: File | None = Field(None, description="vLLM startup log to read the rest from")
    arguments: str | tuple[str, ...] | None = Field(
        None, description="vLLM command line to read the rest from"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        budget, cap = self.max_num_batched_tokens, self.max_num_seqs
        if budget is not None and cap is not None and budget < cap:
            raise ValueError(
                f"max_num_batched_tokens {budget} is below max_num_seqs {cap}: vLLM refuses that"
            )
        return self


# The last bucket edge of time_to_first_token; of the time per output token, ten seconds a token.
MOST_SECONDS: Mapping[str, float] = {"ttft_seconds": 2_560.0, "tpot_seconds": 10.0}


class SloSettings(Part):
    """Latency targets."""

    ttft_seconds: Number | None = Field(None, description="target of time to first token")
    tpot_seconds: Number | None = Field(None, description="target of time per output token")
    share: float = Field(
        0.95, gt=0, le=1, strict=True, description="share of requests that must meet each target"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ttft_seconds is None and self.tpot_seconds is None:
            raise ValueError("an slo has ttft_seconds, tpot_seconds or both")
        for name, most in MOST_SECONDS.items():
            given = getattr(self, name)
            if given is not None and given > most:
                raise ValueError(
                    f"{name} {given:g} is above {most:g} seconds, beyond which vLLM's buckets tell "
                    "nothing: are these milliseconds?"
                )
        return self


class TunedFor(Part):
    """Mean lengths that the settings were chosen for: a declared reference."""

    prompt_tokens: Number | None = Field(None, description="mean prompt length in tokens")
    generation_tokens: Number | None = Field(None, description="mean generation length in tokens")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prompt_tokens is None and self.generation_tokens is None:
            raise ValueError("tuned_for has prompt_tokens, generation_tokens or both")
        return self


class PoolSettings(Part):
    """Targets that serve the same thing in the same way."""

    name: Name = Field(description="name of the pool, as pages print it")
    match: Labels = Field(
        default_factory=dict, description="labels a target must carry to belong to it"
    )
    gpus_per_replica: Number | None = Field(
        None, description="GPUs of one replica, all its engines together"
    )
    gpu_uuids: tuple[str, ...] = Field(
        (), description="its GPUs on bare metal, joined to targets by hostname"
    )
    serving: ServingSettings = Field(
        default_factory=lambda: ServingSettings.model_validate({}),
        description="serving configuration",
    )
    slo: SloSettings | None = Field(None, description="latency targets")
    tuned_for: TunedFor | None = Field(None, description="lengths it was tuned for")


class SlackReceiver(Part):
    """A Slack incoming webhook."""

    webhook_url: SecretUrl | None = Field(None, description="the URL; better in a file")
    webhook_url_file: File | None = Field(None, description="file that holds the URL")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "webhook_url", "webhook_url_file")
        return self

    def read_url(self) -> str:
        """The URL, from its file where it lies in one.

        Raises:
            ConfigError: the file cannot be read, or holds no http(s) URL.
        """
        return read_url_of(self.webhook_url, self.webhook_url_file)


class WebhookReceiver(Part):
    """Any server that takes the page as JSON."""

    url: SecretUrl | None = Field(None, description="where pages are posted; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    secret: Secret | None = Field(None, description="key of the HMAC signature; better in a file")
    secret_file: File | None = Field(None, description="file that holds the key")
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        one_of(self, "secret", "secret_file", required=False)
        return self

    def read_url(self) -> str:
        """The URL, from its file where it lies in one.

        Raises:
            ConfigError: the file cannot be read, or holds no http(s) URL.
        """
        return read_url_of(self.url, self.url_file)

    def read_secret(self) -> str | None:
        """The signing key, None = unsigned.

        Raises:
            ConfigError: the file cannot be read.
        """
        return read_of(self.secret, self.secret_file)


class StdoutReceiver(Part):
    """Pages as JSON lines on standard output."""


class ReceiverSettings(Part):
    """Who is told, and of which severities."""

    name: Name = Field(description="name that rules and commands use")
    slack: SlackReceiver | None = Field(None, description="a Slack incoming webhook")
    webhook: WebhookReceiver | None = Field(None, description="a generic webhook")
    stdout: StdoutReceiver | None = Field(None, description="standard output: {}")
    severities: tuple[Severity, ...] = Field(
        ("page", "ticket", "notice"), min_length=1, description="severities it takes"
    )

    @field_validator("stdout", mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return {} if value is None else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "slack", "webhook", "stdout")
        return self


class Settings(Part):
    """The whole configuration file."""

    sources: tuple[SourceSettings, ...] = Field((), description="where scrapes come from")
    interval: Seconds = Field(15.0, description="time between two ticks")
    connect_timeout: Seconds = Field(2.0, description="time to connect to a source")
    read_timeout: Seconds = Field(10.0, description="time for a source to answer")
    pools: tuple[PoolSettings, ...] = Field((), description="what is known of the targets")
    pool_by: tuple[str, ...] = Field(
        ("namespace", "model_name"),
        min_length=1,
        description="labels that make a pool where none of pools matches",
    )
    detection: DetectionSettings = Field(
        default_factory=lambda: DetectionSettings.model_validate({}),
        description="budget of false episodes, holidays",
    )
    receivers: tuple[ReceiverSettings, ...] = Field((), description="who is told")
    rules: tuple[File, ...] = Field(
        (), description="rule files, folders or globs; without any the shipped ones"
    )
    database: File = Field(
        Path("driftwatch.db"), validate_default=True, description="SQLite file of the incidents"
    )
    listen: str = Field("127.0.0.1:9095", description="address of its own /metrics")
    retention: Seconds = Field(
        3_600.0, le=10 * 365 * 86_400.0, description="how long scrapes are kept as they came"
    )
    external_url: Url | None = Field(None, description="URL that pages link to")
    gpu_hour_price: GpuHourPrice | None = Field(
        None, description="price of a GPU-hour: lost ones are then told in money"
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

    def redacted(self) -> dict[str, Any]:
        """Every setting as plain values, secrets as ``<secret>``; what logs and pages may show."""
        found = _plain(self.model_dump())
        assert isinstance(found, dict)  # noqa: S101 - a model dumps as a mapping
        return found


def _plain(value: object) -> object:
    match value:
        case SecretStr():
            return SECRET
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case Path():
            return str(value)
    return value


def load_settings(path: Path | str, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the configuration file.

    Args:
        path: the YAML file.
        environ: the environment, this process's by default.

    Raises:
        ConfigError: with every problem, each at its place; no secret is in it.
    """
    file = read_yaml(Path(path))
    root = file.root
    settings = None
    if root is None and not file.problems:
        file.problems.append(Problem(file.path, None, None, "empty", "the file says nothing"))
    elif root is not None and not isinstance(root, Entries):
        file.add(root.place, "type", "a configuration is keys and values")
    elif isinstance(root, Entries):
        checked_names(file, root)
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
