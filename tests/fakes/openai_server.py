"""An OpenAI-compatible server on the loopback: real HTTP and server-sent events, no model.

Its engine is a thread that decodes all running requests together, one token a step; a step takes
the time of a step-time model in real seconds. ``max_num_seqs`` bounds the running ones, the others
wait their turn. So throughput rises with concurrency until the cap, and latency after it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from queue import Empty, SimpleQueue
from typing import Any, Literal, Self

from driftwatch.fleet.loopback import Answer, LoopbackServer, Request
from driftwatch.simulate.step_time import StepTime

Fault = Literal["cut", "hang", "drip", "error"]

_MODEL = "tiny-llama"
_END = None


@dataclass(eq=False)
class _Running:
    """One request inside the engine; its tokens leave through ``out``, _END after the last."""

    prompt_tokens: int
    remaining_tokens: int
    context: int = 0
    out: SimpleQueue[int | None] = field(default_factory=SimpleQueue)


class OpenAIServer(LoopbackServer):
    """Serves /v1/models and streamed /v1/completions while it is entered.

    Args:
        step_time: how long a step takes, in seconds of the wall clock.
        tokens_per_word: how many tokens its tokenizer makes of a word of the prompt.
        key: bearer token it wants, None = none.
        refused_fields: body fields that it answers with 400, as servers other than vLLM do.
        tells_usage: a last chunk has the counts where ``stream_options`` asks for it.
        max_model_len: told by /v1/models.

    Attributes:
        faults: what happens to the next streams, first in first out: ``cut`` in the middle,
            ``hang`` after the first token, ``drip`` bytes of a comment for ever, ``error`` inside
            the stream. Whole answers (503 …) are planned with :meth:`fail_next`.
        bodies: JSON of every completion asked for.
    """

    def __init__(
        self,
        step_time: StepTime,
        *,
        max_num_seqs: int = 4,
        tokens_per_word: float = 1.0,
        key: str | None = None,
        refused_fields: frozenset[str] = frozenset(),
        tells_usage: bool = True,
        max_model_len: int = 8192,
    ) -> None:
        super().__init__()
        self._step_time, self._cap = step_time, max_num_seqs
        self._tokens_per_word = tokens_per_word
        self._key = key
        self._refused_fields = refused_fields
        self._tells_usage = tells_usage
        self._max_model_len = max_model_len
        self.faults: deque[Fault] = deque()
        self.bodies: list[dict[str, Any]] = []
        self._waiting: SimpleQueue[_Running] = SimpleQueue()
        self._engine = threading.Thread(target=self._steps)

    @property
    def model(self) -> str:
        return _MODEL

    def judge(self, request: Request) -> Answer:
        kind = {"Content-Type": "application/json"}
        if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
            return Answer(401, '{"error":"Unauthorized"}', kind)
        if request.path == "/v1/models":
            model = {"id": _MODEL, "object": "model", "max_model_len": self._max_model_len}
            return Answer(200, json.dumps({"object": "list", "data": [model]}), kind)
        if request.path != "/v1/completions":
            return Answer(404, '{"detail":"Not Found"}', kind)
        try:
            body = json.loads(request.body)
        except ValueError:
            return Answer(400, '{"error":{"message":"not JSON"}}', kind)
        if unknown := self._refused_fields & set(body):
            return Answer(400, json.dumps({"error": {"message": f"unknown: {unknown}"}}), kind)
        if body.get("model") != _MODEL:
            return Answer(404, '{"error":{"message":"The model does not exist."}}', kind)
        return Answer(200)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        if self.planned or handler.path != "/v1/completions":
            super()._serve(handler)
            return
        length = int(handler.headers.get("Content-Length") or 0)
        headers = {name.lower(): text for name, text in handler.headers.items()}
        request = Request("POST", handler.path, headers, handler.rfile.read(length))
        self.requests.append(request)
        answer = self.judge(request)
        if answer.status != 200:
            handler.send_response(answer.status)
            for name, text in answer.headers.items():
                handler.send_header(name, text)
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            handler.wfile.write(answer.body.encode())
            return
        body = json.loads(request.body)
        self.bodies.append(body)
        fault = self.faults.popleft() if self.faults else None
        # the client may be gone: then its request is freed at the next chunk, as vLLM does
        try:
            self._stream(handler, body, fault)
        except OSError:
            handler.close_connection = True

    def _stream(
        self, handler: BaseHTTPRequestHandler, body: dict[str, Any], fault: Fault | None
    ) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Connection", "close")
        handler.end_headers()

        def send(data: str) -> None:
            raw = data.encode()
            handler.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

        prompt = max(1, round(len(body["prompt"].split()) * self._tokens_per_word))
        request = _Running(prompt, int(body["max_tokens"]))
        self._waiting.put(request)
        try:
            for data in self._chunks(request, body, fault):
                send(data)
        finally:
            request.remaining_tokens = min(
                request.remaining_tokens, 0
            )  # the client may be gone: freed at the next step
        if fault not in ("cut", "hang"):
            handler.wfile.write(b"0\r\n\r\n")

    def _chunks(
        self, request: _Running, body: dict[str, Any], fault: Fault | None
    ) -> Iterator[str]:
        def event(payload: dict[str, Any]) -> str:
            return (
                f"data: {json.dumps({'object': 'text_completion', 'model': _MODEL, **payload})}\n\n"
            )

        max_tokens, sent = request.remaining_tokens, 0
        while self._token(request):
            sent += 1
            yield event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]})
            if fault == "cut" and sent * 2 >= max_tokens:
                return
            if fault == "hang":
                self._closing.wait()
                return
            while fault == "drip" and not self._closing.wait(0.01):
                yield ":"
            if fault == "error":
                yield event({"error": {"message": "EngineDeadError", "code": 500}})
                return
        if self._tells_usage and body.get("stream_options", {}).get("include_usage"):
            counts = {"prompt_tokens": request.prompt_tokens, "completion_tokens": sent}
            total = request.prompt_tokens + sent
            yield event({"choices": [], "usage": {**counts, "total_tokens": total}})
        yield "data: [DONE]\n\n"

    def _token(self, request: _Running) -> bool:
        """Wait for the request's next token; False where there is none any more."""
        while not self._closing.is_set():
            try:
                return request.out.get(timeout=0.2) is not _END
            except Empty:
                continue
        return False

    def _steps(self) -> None:
        """The engine: whole prompts first, then one token of each running request a step."""
        running: list[_Running] = []
        due = time.monotonic()
        while not self._closing.is_set():
            prefill = 0
            while len(running) < self._cap and not self._waiting.empty():
                new = self._waiting.get()
                new.context = new.prompt_tokens
                prefill += new.prompt_tokens
                running.append(new)
            if not running:
                self._closing.wait(0.0005)
                due = time.monotonic()
                continue
            decoding = [r for r in running if r.context > r.prompt_tokens]
            step = self._step_time.seconds(prefill, len(decoding), sum(r.context for r in decoding))
            # sleeping is late by a little each time: steps are laid end to end, but for a stall
            due = max(due, time.monotonic() - step) + step
            time.sleep(max(0.0, due - time.monotonic()))
            for request in running:
                request.context += 1
                request.remaining_tokens -= 1
                if request.remaining_tokens >= 0:
                    request.out.put(request.context)
                if request.remaining_tokens <= 0:
                    request.out.put(_END)
            running = [r for r in running if r.remaining_tokens > 0]

    def __enter__(self) -> Self:
        self._engine.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._engine.join()
        super().__exit__(*error)
