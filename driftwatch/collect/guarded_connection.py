"""Connections of sources that refuse link-local and cloud metadata addresses."""

from __future__ import annotations

import socket

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, NameResolutionError

from driftwatch.address_guard import REFUSED, AddressRefused, permitted_addresses


class GuardedConnection(HTTPConnection):
    """Connects to an address that was checked, and resolves no name after that check."""

    def _new_conn(self) -> socket.socket:
        named = self._dns_host
        try:
            failure: HTTPError | None = None
            for address in permitted_addresses(named, self.port):
                self._dns_host = address
                try:
                    return super()._new_conn()
                except HTTPError as error:
                    failure = error
            raise failure or AddressRefused(1, REFUSED)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        finally:
            self._dns_host = named  # TLS and the header Host want the name
