"""Receivers on loopback HTTP, in a process of their own, that note when each message arrived.

    python -m bench... is not needed: bench/delivery.py starts it

Prints one port a receiver, then, when its input ends, one JSON line of arrivals: receiver ->
idempotency key -> seconds of the monotonic clock, which processes of one machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"


async def serve(kinds: list[str]) -> None:
    """One server a kind: ``hang`` never answers, ``refuse`` answers 503, others take it."""
    arrivals: dict[str, dict[str, float]] = {}
    servers = []
    for number, kind in enumerate(kinds):
        noted = arrivals.setdefault(f"{kind}-{number}", {})

        async def one(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            kind: str = kind,
            noted: dict[str, float] = noted,
        ) -> None:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                fields = dict(line.split(": ", 1) for line in head[1:] if line)
                await reader.readexactly(int(fields.get("content-length", 0)))
                noted.setdefault(fields["idempotency-key"], time.monotonic())
                if kind == "hang":
                    await reader.read()
                else:
                    writer.write(REFUSED if kind == "refuse" else TAKEN)
                    await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        servers.append(await asyncio.start_server(one, "127.0.0.1", 0, backlog=1024))
        print(f"{kind}-{number} {servers[-1].sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(arrivals), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
