"""From a configuration to what a tick needs, plan and sources, and what it lacks for `run`."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.clock import Clock
from driftwatch.collect.fingerprint import merged
from driftwatch.collect.schema import Source
from driftwatch.collect.startup import (
    StartSettings,
    from_arguments,
    from_config,
    from_startup_log,
    merge,
)
from driftwatch.errors import ConfigError, Problem, UsageError
from driftwatch.incidents.planner import FIRST_RECEIVER
from driftwatch.knobs import KNOBS
from driftwatch.model import Slo
from driftwatch.pipeline.plan import Plan, Pool, TunedFor
from driftwatch.rulebook.book import load_rulebook
from driftwatch.settings import Settings
from driftwatch.settings.problems import NO_SECRET, UNREAD_FIX, named_files, without_secrets
from driftwatch.settings.values import read_of, read_url_of
from driftwatch.simulate.hardware import is_file, shipped_hardware
from driftwatch.vllm_arguments.flags import check_text, check_words, plain_words
from driftwatch.yaml_models import Location, node_at, place_of
from driftwatch.yaml_positions import Entries, Items, Scalar, YamlFile, read_yaml

if TYPE_CHECKING:
    from driftwatch import settings as kinds
    from driftwatch.settings import PoolSettings, ServingSettings, Settings


def plan_of_rules(paths: Sequence[Path]) -> Plan:
    """A plan without pools: every target is grouped by namespace and model.

    Raises:
        ConfigError: a rule or tree file has problems.
    """
    book = load_rulebook(paths)
    return Plan(book.rules, book.every_tree)


def plan_of(config: Path) -> Plan:
    """The plan of a configuration file.

    Raises:
        ConfigError: the configuration, or a rule or tree file, has problems.
        UsageError: a start-up log cannot be read.
    """
    from driftwatch.settings import load_settings

    return plan_of_settings(load_settings(config))


def plan_of_settings(settings: Settings) -> Plan:
    """The plan of a loaded configuration; errors as :func:`plan_of`."""
    book = load_rulebook(configured=settings)
    return Plan(
        rules=book.rules,
        trees=book.every_tree,
        pools=tuple(_pool(pool) for pool in settings.pools),
        pool_by=settings.pool_by,
        own_hosts=_own_hosts(settings),
        external_url=settings.external_url,
    )


def _own_hosts(settings: Settings) -> frozenset[str]:
    """Names of this machine where its GPUs are read, also those in the addresses of its servers."""
    from driftwatch import settings as kinds

    if not any(isinstance(source, kinds.NvmlSource) for source in settings.sources):
        return frozenset()
    from driftwatch.collect.nvml import own_hosts

    pages = [s for s in settings.sources if isinstance(s, kinds.PagesSource)]
    return own_hosts(url for source in pages for url in source.pages)


def _pool(pool: PoolSettings) -> Pool:
    """Raises UsageError, ConfigError: a file of its model or GPU, or its log, cannot be read."""
    slo, tuned, serving, tables = pool.slo, pool.tuned_for, pool.serving, shipped_hardware()
    if serving.model is not None and is_file(serving.model):
        tables.model(serving.model)  # a file that cannot be read stops the start
    if serving.gpu is not None and is_file(serving.gpu):
        tables.gpu(serving.gpu)
    started = started_with(pool.serving)
    return Pool(
        name=pool.name,
        match=pool.match,
        serving=merge(*(one.serving for one in started)),
        slo=Slo() if slo is None else Slo(slo.ttft_seconds, slo.tpot_seconds, slo.share),
        tuned_for=TunedFor()
        if tuned is None
        else TunedFor(tuned.prompt_tokens, tuned.generation_tokens),
        gpus_per_replica=pool.gpus_per_replica,
        gpu_uuids=pool.gpu_uuids,
        reported=merged(*(one.fingerprint for one in started)),
        model=serving.model,
        gpu=pool.serving.gpu,
        receivers=pool.receivers or (),
    )


def _words(arguments: str | tuple[str, ...]) -> list[str]:
    """Of a text: split as the shell would.

    Raises UsageError: a quote is never closed.
    """
    if not isinstance(arguments, str):
        return list(arguments)
    try:
        return plain_words(arguments)
    except ValueError as error:
        raise UsageError(f"serving.arguments: {error}") from None


def started_with(settings: ServingSettings) -> list[StartSettings]:
    """Settings of the file, then of the vLLM arguments, then of the start-up log.

    Raises:
        UsageError: the start-up log cannot be read, or the arguments are none of vLLM's.
    """
    values = {knob: getattr(settings, knob, None) for knob in KNOBS}
    parts = [StartSettings(from_config({k: v for k, v in values.items() if v is not None}))]
    if settings.arguments is not None:
        parts.append(from_arguments(_words(settings.arguments)))
    if settings.startup_log is not None:
        try:
            text = settings.startup_log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{settings.startup_log}: {error.strerror}") from error
        parts.append(from_startup_log(text, path=str(settings.startup_log)))
    return parts


def sources_of(settings: Settings, clock: Clock) -> list[Source]:
    """The sources of a configuration, in its order.

    Raises:
        ConfigError: a secret file cannot be read.
        UsageError: there is no source, or two servers have the same instance name.
    """
    from driftwatch import settings as kinds

    sources: list[Source] = []
    pages: dict[str, dict[str, str]] = {}
    verify: dict[str, str] = {}
    exporters: list[str] = []
    for source in settings.sources:
        if isinstance(source, kinds.PrometheusSource):
            sources += _prometheus(source, {one.name for one in sources})
        elif isinstance(source, kinds.PagesSource):
            pages |= {url: dict(source.labels) for url in source.pages}
            if source.ca_file is not None:
                verify |= dict.fromkeys(source.pages, str(source.ca_file))
        elif isinstance(source, kinds.RecordingSource):
            from driftwatch.collect.recordings import open_recording

            sources.append(open_recording(source.recording))
        elif isinstance(source, kinds.DcgmSource):
            exporters += source.dcgm
        elif isinstance(source, kinds.NvmlSource) and not any(s.name == "nvml" for s in sources):
            from driftwatch.collect.nvml import NvmlSource

            sources.append(NvmlSource(clock))
    if pages:
        from driftwatch.collect.pages import PagesSource

        sources.append(PagesSource(pages, clock, verify=verify))
    if exporters:
        from driftwatch.collect.dcgm_sources import DcgmPagesSource

        sources.append(DcgmPagesSource(exporters, clock=clock))
    if not sources:
        raise UsageError(
            "the configuration has no source",
            help_text="sources: [{pages: [http://host:8000/metrics]}]",
        )
    return sources


def api_of(source: kinds.PrometheusSource) -> dict[str, Any]:
    """Credentials and bounds of an API, as its client takes them.

    Raises:
        ConfigError: a secret file cannot be read.
    """
    auth = source.basic_auth
    return {
        "timeout_seconds": source.query_timeout,
        "headers": {} if source.tenant is None else {"X-Scope-OrgID": source.tenant},
        "verify": True if source.ca_file is None else str(source.ca_file),
        # an error at the start if it cannot be read; later read anew for each query: tokens rotate
        "bearer_token": partial(source.read, "bearer_token")
        if source.read("bearer_token")
        else None,
        "basic_auth": None if auth is None else (auth.username, auth.read("password") or ""),
    }


def _prometheus(source: kinds.PrometheusSource, names: Container[str]) -> list[Source]:
    """The vLLM servers of one API, and its GPUs where the configuration wants them.

    Its name is that of its host, and not of its place in the file, which may change: a target is
    known to come from it.
    """
    from driftwatch.collect.dcgm_sources import DcgmPrometheusSource
    from driftwatch.collect.prometheus.client import PrometheusAsker
    from driftwatch.collect.prometheus.source import PrometheusSource

    api = api_of(source)
    asker = PrometheusAsker(source.prometheus, **api)
    of_host = f"prometheus {asker.host}"
    several = (f"{of_host} #{number}" for number in count(2))
    name = next(one for one in chain((of_host,), several) if one not in names)
    sources: list[Source] = [
        PrometheusSource(
            asker,
            selector=dict(source.match),
            budget_seconds=source.budget,
            name=name,
        )
    ]
    if source.dcgm:
        sources.append(
            DcgmPrometheusSource(
                PrometheusAsker(source.prometheus, **api),
                budget_seconds=source.budget,
                name=f"{name} dcgm",
            )
        )
    return sources


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
            help_text = None if location[-1] in NO_SECRET else UNREAD_FIX
            file.add(place_of(root, location), "file", reason, help_text)
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
                message = f"{value:g} s is a long target: milliseconds?"
                place = place_of(root, ("pools", number, "slo", name))
                file.add(
                    place, "unit", message, f"for {value:g} ms write {value / 1000:g}", "warning"
                )
    problems = [without_secrets(problem) for problem in file.problems]
    if not settings.sources:
        help_text = "sources: [{pages: [http://host:8000/metrics]}]"
        problems.append(_warning(path, "no-sources", "no sources: nothing is watched", help_text))
    if not settings.receivers:
        what = "no receivers: nobody gets a page"
        problems.append(_warning(path, "no-receivers", what, FIRST_RECEIVER))
    return problems


def _file(settings: Settings, path: Path) -> YamlFile:
    """The file, to note problems in; those of reading it were reported before."""
    return replace(settings.file or read_yaml(path), problems=[])


# Seconds; who waits so long for a first token, or for each further one, has no target.
LONGEST_TARGETS = {"ttft_seconds": 60.0, "tpot_seconds": 1.0}


def unreadable_secrets(settings: Settings) -> dict[str, dict[Location, str]]:
    """Receiver name → where its files are named that cannot be read, and why."""
    return {
        receiver.name: {
            location: reason
            for location, path in named_files(receiver, ("receivers", number))
            if (reason := _why_not(location, path)) is not None
        }
        for number, receiver in enumerate(settings.receivers)
    }


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
    """Every problem of ``pools[].serving``: of its arguments and of its start-up log.

    ``settings``: as loaded from ``path``.
    """
    file = _file(settings, path)
    for number, pool in enumerate(settings.pools):
        _note_log(file, number, pool)
        location = ("pools", number, "serving", "arguments")
        node = node_at(file.root, location) if isinstance(file.root, Entries) else None
        if isinstance(node, Scalar):
            check_text(node, file)
        elif isinstance(node, Items):
            words = [one for one in node.items if isinstance(one, Scalar)]
            texts = [w.value if isinstance(w.value, str) else w.raw for w in words]
            check_words(texts, [one.place for one in words], file)
    return tuple(file.problems)


def _note_log(file: YamlFile, number: int, pool: PoolSettings) -> None:
    """Note a log without a start of vLLM; one that cannot be read is a problem of :func:`unmet`."""
    try:
        started_with(pool.serving)
    except UsageError as error:
        begin, root = f"{pool.serving.startup_log}: ", file.root
        if isinstance(root, Entries) and error.help_text and error.message.startswith(begin):
            place = place_of(root, ("pools", number, "serving", "startup_log"))
            file.add(place, "file", error.message, error.help_text)
