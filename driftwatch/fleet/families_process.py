"""Families beside vLLM's own: of the Python client library and of the HTTP middleware.

As on the recorded pages: ``python_*`` and ``process_*`` from prometheus_client's collectors,
``http_*`` from prometheus-fastapi-instrumentator. Help texts of the latter end in a space.
"""

from __future__ import annotations

from driftwatch.fleet.families import Family, FamilyType

_GENERATIONS = ("0", "1", "2")


def _process(name: str, kind: FamilyType, told: str) -> Family:
    return Family(name, kind, told, (name,), scope="process", created=False)


def _collected(name: str, told: str) -> Family:
    columns = tuple(f"{name}_{generation}" for generation in _GENERATIONS)
    return Family(
        name, "counter", told, columns, "generation", _GENERATIONS, scope="process", created=False
    )


PYTHON: tuple[Family, ...] = (
    _collected("python_gc_objects_collected", "Objects collected during gc"),
    _collected("python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
    _collected("python_gc_collections", "Number of times this generation was collected"),
    _process("python_info", "gauge", "Python platform information"),
    _process("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    _process("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    _process(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
    ),
    _process("process_cpu_seconds", "counter", "Total user and system CPU time spent in seconds."),
    _process("process_open_fds", "gauge", "Number of open file descriptors."),
    _process("process_max_fds", "gauge", "Maximum number of open file descriptors."),
)

PYTHON_INFO = {
    "implementation": "CPython",
    "major": "3",
    "minor": "11",
    "patchlevel": "7",
    "version": "3.11.7",
}

_SIZE = (
    "Content length of {} by handler. Only value of header is respected. Otherwise ignored. "
    "No percentile calculated. "
)

HTTP_REQUESTS = Family(
    "http_requests",
    "counter",
    "Total number of requests by method, status and handler.",
    ("http_requests_2xx", "http_requests_5xx"),
    "status",
    ("2xx", "5xx"),
    scope="process",
)
HTTP_REQUEST_SIZE = Family(
    "http_request_size_bytes",
    "summary",
    _SIZE.format("incoming requests"),
    ("http_request_size",),
    scope="process",
)
HTTP_RESPONSE_SIZE = Family(
    "http_response_size_bytes",
    "summary",
    _SIZE.format("outgoing responses"),
    ("http_response_size",),
    scope="process",
)
HTTP_HIGHR = Family(
    "http_request_duration_highr_seconds",
    "histogram",
    "Latency with many buckets but no API specific labels. Made for more accurate percentile "
    "calculations. ",
    ("http_highr",),
    group="http_highr",
    scope="process",
)
HTTP_BY_HANDLER = Family(
    "http_request_duration_seconds",
    "histogram",
    "Latency with only few buckets by handler. Made to be only used if aggregation by handler is "
    "important. ",
    ("http_by_handler",),
    group="http_by_handler",
    scope="process",
)
HTTP: tuple[Family, ...] = (
    HTTP_REQUESTS,
    HTTP_REQUEST_SIZE,
    HTTP_RESPONSE_SIZE,
    HTTP_HIGHR,
    HTTP_BY_HANDLER,
)
