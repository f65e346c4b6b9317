"""The traffic of a scenario's pool, as data."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from driftwatch.durations import parse_duration
from driftwatch.settings.values import Count, File, Name, Number, Seconds
from driftwatch.yaml_models import Part


def _offset(value: object) -> float:
    """A time from the start in seconds; 0 is allowed."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("a time from the start is text such as 90m")
    return 0.0 if str(value) in ("0", "0s", "0.0") else parse_duration(str(value))


Offset = Annotated[float, BeforeValidator(_offset)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class Season(Part):
    """Demand over the day and the week."""

    peak_to_trough: float = Field(1.0, ge=1, description="rate at the peak over that at night")
    peak_hour: float = Field(15.0, ge=0, lt=24, description="hour (UTC) of the peak")
    weekend_ratio: float = Field(1.0, gt=0, description="of the rate on Saturday and Sunday")


class NewClient(Part):
    """A new client, in addition to the others."""

    share_ratio: float = Field(gt=0, lt=1, description="of all requests, from then on")
    prompt_tokens: Count = Field(1200, description="mean of its prompts")
    generation_tokens: Count | None = Field(None, description="mean; without it as the others")


class Change(Part):
    """A change of traffic from ``at`` on (until ``until``); values that are not named stay.

    With ``replicas`` only these servers' traffic changes: a client that sticks to its server.
    """

    at: Offset = Field(description="start")
    until: Offset | None = Field(None, description="end; without it never")
    ramp: Offset = Field(0.0, description="how long factors take to reach their value")
    replicas: tuple[int, ...] = Field((), description="numbers from 0; without it all")
    prompt_factor: float = Field(1.0, gt=0, description="on prompt lengths")
    generation_factor: float = Field(1.0, gt=0, description="on generation lengths")
    rate_factor: float = Field(1.0, ge=0, description="on requests per second")
    new_client: NewClient | None = Field(None, description="a further client")
    prefix_hit_ratio: Ratio | None = Field(None, description="of prompt tokens")
    cancelled_ratio: Ratio | None = Field(None, description="of requests")
    adapters: Count | None = Field(None, description="different LoRA adapters in use")


class Bursts(Part):
    """Stretches of minutes in which the whole pool gets many more requests.

    They come at random; their lengths and sizes are log-normal around the given ones.
    """

    per_day: float = Field(gt=0, description="mean number")
    lasting: Seconds = Field(240.0, description="median length")
    rate_factor: float = Field(4.0, gt=1, description="median, on requests per second")
    prompt_factor: float = Field(1.0, gt=0, description="on prompt lengths")
    generation_factor: float = Field(1.0, gt=0, description="on generation lengths")


class Hours(Part):
    """Other traffic in some hours of every day, such as long prompts at night."""

    since_hour: float = Field(ge=0, lt=24, description="hour (UTC) of their start")
    until_hour: float = Field(ge=0, lt=24, description="hour of their end; may be the next day")
    rate_factor: float = Field(1.0, gt=0, description="on requests per second")
    prompt_factor: float = Field(1.0, gt=0, description="on prompt lengths")
    generation_factor: float = Field(1.0, gt=0, description="on generation lengths")


class Traffic(Part):
    """The pool's requests: a rate, or a share of its servers' capacity."""

    source: Literal["azure_conv", "azure_code", "servegen"] = Field(
        "azure_conv", description="shipped trace of lengths and arrivals"
    )
    path: File | None = Field(
        None, description="a request log or trace instead; a folder with ServeGen's two files"
    )
    model_class: Name | None = Field(
        None, description="ServeGen: which pair of files in the folder, e.g. m-mid"
    )
    clients: Literal["all", "even", "odd"] = Field(
        "all", description="ServeGen: all with lengths, or those of even or odd number"
    )
    requests_per_second: Number | None = Field(None, le=1e5, description="mean of the whole pool")
    utilisation_ratio: float | None = Field(
        None, gt=0, le=2, description="instead: mean share of the servers' capacity at the start"
    )
    offset: Offset = Field(0.0, description="ServeGen: where in its two weeks to begin")
    season: Season = Field(
        default_factory=lambda: Season.model_validate({}), description="day and week"
    )
    wander_ratio: Ratio = Field(0.05, description="sd of the slow wander of the rate")
    prefix_hit_ratio: Ratio = Field(0.2, description="of prompt tokens, found in the cache")
    cancelled_ratio: Ratio = Field(0.005, description="of requests, by their clients")
    adapters: Count | None = Field(None, description="different LoRA adapters in use")
    timeout: Seconds | None = Field(None, description="clients give up after this time")
    bursts: Bursts | None = Field(None, description="bursts of requests; none: as in the trace")
    hours: tuple[Hours, ...] = Field((), description="other traffic in some hours of a day")
    changes: tuple[Change, ...] = Field((), description="changes of traffic")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.requests_per_second is None) == (self.utilisation_ratio is None):
            raise ValueError("needs one of requests_per_second and utilisation_ratio")
        return self
