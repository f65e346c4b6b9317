"""Where scrapes come from: a Prometheus's API, pages, DCGM, NVML, recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from driftwatch.settings.values import (
    File,
    HeaderText,
    Labels,
    Seconds,
    Url,
    WithSecrets,
    base_url,
    one_of,
)
from driftwatch.yaml_models import Part

# of the API, and of the pages that people copy the address from
_PATHS = ("/api/v1/query", "/api/v1", "/graph", "/query", "/targets", "/metrics")


class BasicAuth(WithSecrets):
    """HTTP basic authentication."""

    username: str = Field(description="user name")
    password_file: File = Field(description="file that holds the password")


class PrometheusSource(WithSecrets):
    """A Prometheus-compatible API."""

    prometheus: Annotated[Url, base_url(*_PATHS)] = Field(description="base URL of the API")
    match: Labels = Field(default_factory=dict, description="labels that a vLLM series must carry")
    bearer_token_file: File | None = Field(None, description="file that holds a bearer token")
    basic_auth: BasicAuth | None = Field(None, description="user and password")
    tenant: HeaderText | None = Field(
        None, min_length=1, description="sent as X-Scope-OrgID (Mimir, Cortex, Thanos, Loki)"
    )
    ca_file: File | None = Field(None, description="authorities in PEM that check its certificate")
    query_timeout: Seconds = Field(
        15.0, description="longest time of one query; all of a tick have four times as much"
    )
    dcgm: bool = Field(True, description="read DCGM_* series as well")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "bearer_token_file", "basic_auth", required=False)
        return self

    @property
    def budget(self) -> float:
        """Longest time of all queries of a tick, in seconds."""
        return 4 * self.query_timeout


class PagesSource(Part):
    """vLLM ``/metrics`` pages, scraped directly."""

    pages: tuple[Url, ...] = Field(min_length=1, description="URLs of /metrics pages")
    labels: Labels = Field(default_factory=dict, description="labels their targets get")
    ca_file: File | None = Field(None, description="authorities in PEM that check certificates")


class DcgmSource(Part):
    """dcgm-exporter ``/metrics`` pages, scraped directly."""

    dcgm: tuple[Url, ...] = Field(min_length=1, description="URLs of dcgm-exporter's /metrics")


class NvmlSource(Part):
    """NVML on the machine that driftwatch runs on."""

    nvml: Literal[True] = Field(description="true: read this machine's GPUs")


class RecordingSource(Part):
    """Recorded scrapes."""

    recording: File = Field(description="scrapes.jsonl.gz, or the folder of a recording")


def _kind_of_source(value: object) -> str | None:
    """The tag of a source; tags stand in parentheses so that no key can be taken for one."""
    if isinstance(value, Mapping):
        # a Prometheus source has a dcgm switch of its own
        kinds = [kind for kind in SOURCE_KINDS if kind in value]
        if "prometheus" in kinds and "dcgm" in kinds:
            kinds.remove("dcgm")
        return f"({kinds[0]})" if len(kinds) == 1 else None
    known = SOURCE_KINDS.items()
    return next((f"({name})" for name, kind in known if isinstance(value, kind)), None)


SOURCE_KINDS: Mapping[str, type[Part]] = {
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
