"""A Prometheus API with prepared answers for a synthetic fleet, in a process of its own.

    python bench/canned_api.py PAGE FOLDER

It says its port on standard output and serves on the loopback. ``POST /prepare`` (JSON: instances,
scraped_at, scrape) writes the answers of one interval into FOLDER; ``/api/v1/query`` then
sends them from there, over connections that are kept. What a tick pays for is fetching and
reading, not making the answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import orjson
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from driftwatch.collect.prometheus.query import matchers, questions, select

JOB = {"job": "vllm"}
_COUNTING = ("_total", "_sum", "_count", "_bucket")
_INSTANCE = b"@instance@"
_HEAD = b'{"status":"success","data":{"resultType":"matrix","result":['


def grown(value: float, scrape: int) -> float:
    """A counter grows by one part in a hundred per scrape."""
    return value * (1 + scrape / 100)


class CannedAnswers:
    """What the API answers to a source with ``selector=JOB``, one interval at a time."""

    def __init__(self, page: str, folder: Path) -> None:
        self._folder = folder
        samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
        self._up = select(("up",), matchers(JOB))
        self._names: dict[str, list[list[Sample]]] = {}
        for question in questions():
            ours = [s for s in samples if s.name in question.names]
            names = sorted({s.name for s in ours})
            # the API sorts series by name, then by instance, for engine is the same everywhere
            self._names[select(question.names, matchers(JOB))] = [
                sorted((s for s in ours if s.name == n), key=lambda s: sorted(s.labels.items()))
                for n in names
            ]

    def path(self, query: str) -> Path:
        """Where the answer to this query lies, whatever its range."""
        query = query.partition("[")[0]
        return self._folder / hashlib.sha256(query.encode()).hexdigest()

    def prepare(
        self,
        instances: Sequence[str],
        scraped_at: Sequence[float],
        scrape: int,
    ) -> dict[str, int]:
        """Write the answers of one interval; how many series and bytes they have."""
        ordered = [name.encode() for name in sorted(instances)]

        def series(labels: Mapping[str, str], texts: Sequence[str]) -> bytes:
            head = orjson.dumps(
                {**labels, **JOB, "instance": _INSTANCE.decode()},
                option=orjson.OPT_SORT_KEYS,
            )
            points = ",".join(
                f'[{at:.3f},"{text}"]' for at, text in zip(scraped_at, texts, strict=True)
            )
            return b'{"metric":' + head + b',"values":[' + points.encode() + b"]}"

        def value(sample: Sample) -> list[str]:
            grows = sample.name.endswith(_COUNTING)
            numbers = range(scrape, scrape + len(scraped_at))
            at = [grown(sample.value, n) if grows else sample.value for n in numbers]
            return [repr(float(v)).removesuffix(".0") for v in at]

        answers = {
            self._up: [series({"__name__": "up"}, ["1"] * len(scraped_at))],
        }
        for text, names in self._names.items():
            answers[text] = [
                b",".join(series({"__name__": s.name, **s.labels}, value(s)) for s in samples)
                for samples in names
            ]
        size = count = 0
        for text, units in answers.items():
            count += sum(unit.count(_INSTANCE) for unit in units) * len(instances)
            size += self._write(self.path(text), units, ordered)
        return {"series": count, "bytes": size}

    def _write(self, path: Path, units: Sequence[bytes], instances: Sequence[bytes]) -> int:
        """One answer; its bytes."""
        pieces = (unit.replace(_INSTANCE, name) for unit in units for name in instances)
        with path.open("wb") as out:
            out.write(_HEAD)
            for n, piece in enumerate(pieces):
                out.write(b"," + piece if n else piece)
            out.write(b"]}}")
            return out.tell()


def serve(answers: CannedAnswers, announce: Callable[[int], None]) -> None:
    """Serve on a free port of the loopback until the process ends."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # as Prometheus; else small answers wait for 40-ms acks
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/prepare":
                told = answers.prepare(**json.loads(body))
                self._send(200, orjson.dumps(told))
            elif urlsplit(self.path).path == "/api/v1/query":
                (query,) = parse_qs(body.decode())["query"]
                self._send_file(answers.path(query))
            else:
                self._send(404, b"{}")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _send_file(self, path: Path) -> None:
            with path.open("rb") as body:
                size = os.fstat(body.fileno()).st_size
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.flush()
                at = 0
                while at < size:
                    at += os.sendfile(self.connection.fileno(), body.fileno(), at, size - at)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: standard output says the port and no more."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    announce(server.server_address[1])
    server.serve_forever()


def main() -> None:
    page, folder = Path(sys.argv[1]), Path(sys.argv[2])
    serve(CannedAnswers(page.read_text(), folder), lambda port: print(port, flush=True))


if __name__ == "__main__":
    main()
