"""A sender of remote write for a synthetic fleet, in a process of its own.

    python bench/canned_sender.py PAGE

For each line on standard input (JSON: url, count, at_ms, scrape) it posts one scrape of so many
servers, in requests of 42 servers (10,000 samples), and says how many bytes it sent. The series of
a server are those of a real ``/metrics`` page that driftwatch reads, and ``up``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import requests
from canned_api import grown
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.remote_write.sender import sample_names
from driftwatch.testing.write_requests import compressed, time_series

NAME = "host-{:05d}.example.internal:8000"
_PLACE = b"host-@@@@@"
_SERVERS = 42
_COUNTING = ("_total", "_sum", "_count", "_bucket")
HEADERS = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}


def series(page: str, at_ms: int, scrape: int) -> bytes:
    """One server's part of a request."""
    wanted = set(sample_names())
    found = [({"__name__": "up"}, 1.0)]
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in wanted:
                counts = sample.name.endswith(_COUNTING)
                value = grown(sample.value, scrape) if counts else sample.value
                found.append(({"__name__": sample.name, **sample.labels}, value))
    own = {"instance": NAME.replace("{:05d}", "@@@@@"), "job": "vllm"}
    return b"".join(time_series(({**labels, **own}, [(at_ms, value)])) for labels, value in found)


def main() -> None:
    page = Path(sys.argv[1]).read_text()
    session = requests.Session()
    print(len(series(page, 0, 0)), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        one, size = series(page, question["at_ms"], question["scrape"]), 0
        for first in range(0, question["count"], _SERVERS):
            several = range(first, min(first + _SERVERS, question["count"]))
            body = compressed(b"".join(one.replace(_PLACE, b"host-%05d" % i) for i in several))
            answer = session.post(question["url"], body, headers=HEADERS, timeout=60)
            assert answer.status_code in (200, 204), answer.text
            size += len(body)
        print(size, flush=True)


if __name__ == "__main__":
    main()
