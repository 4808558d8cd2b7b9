"""Serve a run's report to a browser, only on this machine, and reload it while the run continues."""

import hmac
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCAL = "127.0.0.1"
CLOSED = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The page's own policy lets it load nothing. Its address has the token, and so must not be sent as a referrer."""


class LivePage(ThreadingHTTPServer):
    """A server of one page, made anew for each request, under an address with a random token.

    ``page`` returns the HTML, and whether it is the last one. Until then the browser reloads it ``every`` so many
    seconds. The server refuses any path but that of ``address``, and any other host name.
    """

    daemon_threads = True

    def __init__(self, page: Callable[[], tuple[str, bool]], every: float) -> None:
        super().__init__((LOCAL, 0), _Request)
        self._page, self._lock, self.every = page, threading.Lock(), every
        self.host = f"{LOCAL}:{self.server_port}"
        self.path = f"/{secrets.token_urlsafe(24)}"
        self.address = f"http://{self.host}{self.path}"

    def page(self) -> tuple[str, bool]:
        """Return the page; one request at a time."""
        with self._lock:
            return self._page()


class _Request(BaseHTTPRequestHandler):
    """A GET request. The base class refuses all others."""

    server: LivePage
    server_version, sys_version = "prunedata", ""
    timeout = 10

    def do_GET(self) -> None:
        # Another site can point its own name to this machine, but has no token, and cannot send another Host.
        known = hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.path.encode())
        if not known or self.headers.get_all("Host") != [self.server.host]:
            self.send_error(403)
            return
        try:
            page, last = self.server.page()
        except Exception as error:  # the run is being written, or was moved: the browser reloads later
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
        """Log nothing: an address in a log would reveal the token."""
