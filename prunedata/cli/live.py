"""A run's report as a page of a server on this machine alone, which the browser loads again and again."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["LivePage"]

LOCAL = "127.0.0.1"
CLOSED = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The page itself says what it may load, which is nothing. Its address holds the token, so it is in no referrer."""


class LivePage(ThreadingHTTPServer):
    """Serves one page, made anew for each request, to who knows its address.

    Parameters
    ----------
    page : callable
        Returns the HTML, and whether it is the last: then the browser stops to ask.
    every : float
        Seconds after which the browser asks again.

    Attributes
    ----------
    address : str
        With a random token. Any other one, and any other host's name for this machine, is refused.
    """

    daemon_threads = True

    def __init__(self, page: Callable[[], tuple[str, bool]], every: float) -> None:
        super().__init__((LOCAL, 0), _Request)
        self._page, self._lock, self.every = page, threading.Lock(), every
        self.host = f"{LOCAL}:{self.server_port}"
        self.path = f"/{secrets.token_urlsafe(24)}"
        self.address = f"http://{self.host}{self.path}"

    def page(self) -> tuple[str, bool]:
        """Make the page; one request at a time."""
        with self._lock:
            return self._page()


class _Request(BaseHTTPRequestHandler):
    """One request. Whatever is no GET is refused by the base class."""

    server: LivePage
    server_version, sys_version = "prunedata", ""
    timeout = 10

    def do_GET(self) -> None:
        # A page elsewhere can let its own name mean this machine, but not know the token, nor send another name.
        known = hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.path.encode())
        if not known or self.headers.get_all("Host") != [self.server.host]:
            self.send_error(403)
            return
        try:
            page, last = self.server.page()
        except Exception as error:  # the run is being written, or was moved: the browser asks again
            self._send(503, f"The run cannot be read now: {error}\n", "text/plain", last=False)
            return
        self._send(200, page, "text/html", last=last)

    def _send(self, status: int, text: str, kind: str, *, last: bool) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        for name, value in CLOSED.items():
            self.send_header(name, value)
        if not last:
            self.send_header("Refresh", f"{self.server.every:g}")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: an address in a log would give the token away."""
