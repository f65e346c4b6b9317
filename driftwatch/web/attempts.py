"""Wrong tokens, address by address: who has sent many waits. Time is an argument."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

MOST_WRONG, WITHIN = 10, timedelta(minutes=1)
# addresses that are kept in mind; of more, the one that was quiet longest is dropped
MOST_ADDRESSES = 10_000
# of IPv6 one customer has so much
_IPV6_PREFIX = 64


class Attempts:
    """Wrong tokens of the last minute."""

    def __init__(self) -> None:
        self._wrong: dict[str, deque[datetime]] = {}

    def is_throttled(self, address: str, now: datetime) -> bool:
        """Whether no token of this address is looked at now."""
        times = self._wrong.get(_whose(address))
        if times is None:
            return False
        while times and now - times[0] >= WITHIN:
            times.popleft()
        return len(times) >= MOST_WRONG

    def count_wrong(self, address: str, now: datetime) -> None:
        """Keep in mind that a wrong token came from there."""
        whose = _whose(address)
        # at the end: the order of the table is that of the last wrong token
        times = self._wrong.pop(whose, None) or deque(maxlen=MOST_WRONG)
        times.append(now)
        self._wrong[whose] = times
        if len(self._wrong) > MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]


def _whose(address: str) -> str:
    try:
        one = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(one, IPv6Address):
        return str(one)
    if one.ipv4_mapped is not None:
        return str(one.ipv4_mapped)
    return str(int(one) >> (128 - _IPV6_PREFIX))
