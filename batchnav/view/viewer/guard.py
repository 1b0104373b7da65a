"""Protection of the viewer's server: who may connect, and which messages reach viser.

A browser lets any web page open a websocket to 127.0.0.1, and a name that a stranger controls can resolve to it (DNS
rebinding). `guarded_server` checks, before viser sees a request:

- Host: on a loopback address, one of its names. On other addresses any name, but a secret token is required.
- Origin: the served page itself (same host and port), or none, as programs other than browsers send.

An address with the token is answered by a cookie and the address without it. The page may load nothing from other
servers, show no frames and name no referrer. Texts of files enter its Markdown through `plain_markdown`.

It also checks every message of a client: the camera, a control's new value within the control's range, and a command.
All other messages, which include requests for viser's public tunnel, are dropped.
"""

from __future__ import annotations

import gzip
import hmac
import html
import http
import ipaddress
import logging
import math
import re
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from batchnav.errors import ArgumentError, DeviceError, printable, shortened
from batchnav.runtime.imports import install_command

MAX_MESSAGE = 1 << 16
"""Largest message that a client may send, bytes; a camera has about 300."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine that only itself can reach."""
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]{1,255}")
"""A Host header that may stand in another header."""
_CONSTRUCTION = threading.Lock()
"""Held while `websockets` is replaced, so that two servers do not replace it at once."""


def plain_markdown(text: str) -> str:
    """A text as Markdown that shows it: no character of it is markup, HTML or an expression of MDX."""
    return "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in printable(text))


def page_headers(host: str) -> dict[str, str]:
    """Headers of the page, served under a name and port: it talks to this server only. Its script decodes itself."""
    sockets = f" ws://{host} wss://{host}" if _PLAIN_HOST.fullmatch(host) else ""
    policy = {
        "default-src": "'self' data: blob:", "connect-src": f"'self' data: blob:{sockets}",
        "script-src": "'self' data: blob: 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'",
        "style-src": "'self' data: blob: 'unsafe-inline'", "frame-src": "'none'", "object-src": "'none'",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    text = "; ".join(f"{name} {sources}" for name, sources in policy.items())
    return {"Content-Security-Policy": text, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


class Gate:
    """Decides on requests by their headers.

    Args:
        host: address that the server listens on.
    """

    def __init__(self, host: str):
        self.host = host
        self.token = None if is_loopback(host) else secrets.token_urlsafe(24)
        """Secret that the page's address carries; None on loopback addresses."""

    def refusal(self, headers: Any, path: str, public: bool) -> str | None:
        """Why a request is refused; None if it is not.

        Args:
            headers: the request's headers, with `get_all`.
            path: the request's path and query.
            public: True for files that are the same for everyone; they need no token.
        """
        hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
        if len(hosts) != 1 or len(origins) > 1:
            return (
                f"found {len(hosts)} Host and {len(origins)} Origin headers, expected one Host and at most one Origin"
            )
        name = _host_name(hosts[0])
        if self.token is None and name not in {*LOOPBACK, self.host.lower()}:
            return f"found Host {shortened(hosts[0])}, expected localhost or {self.host}"
        if origins and origins[0].lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
            return f"found Origin {shortened(origins[0])}, expected the viewer's own page"
        if self.token is not None and not public and not self._has_token(headers, path):
            return "found no token; open the address that batchnav view printed, which ends in ?token=..."
        return None

    def cookie(self, path: str) -> str | None:
        """The cookie for a request whose address carries the token; None for other requests."""
        if self.token is None or not self._in_query(path):
            return None
        return f"{self._cookie_name}={self.token}; HttpOnly; SameSite=Lax; Path=/"

    @property
    def _cookie_name(self) -> str:
        return "batchnav_view_" + str(self.token)[:8]

    def _in_query(self, path: str) -> bool:
        return any(self._equal(found) for found in parse_qs(urlsplit(path).query).get("token", []))

    def _has_token(self, headers: Any, path: str) -> bool:
        cookies = [part.strip() for line in headers.get_all("Cookie") for part in line.split(";")]
        values = (value for name, _, value in (part.partition("=") for part in cookies) if name == self._cookie_name)
        return self._in_query(path) or any(self._equal(value) for value in values)

    def _equal(self, found: str) -> bool:
        return hmac.compare_digest(found.encode("utf-8", "replace"), str(self.token).encode())


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(host: str) -> str | None:
    """The name in a Host header, in lower case and without port; None if it is not one."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def check_address(host: str, port: int) -> None:
    """Check that a server can listen on `host`; ArgumentError if not, or for a port out of range."""
    if not 0 <= port <= 65535:
        raise ArgumentError(f"port: found {shortened(port)}, expected 0 to 65535 (0: any free port)")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.bind(address)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"host: found {shortened(host)}, expected an address of this machine, such as 127.0.0.1 ({error})"
        ) from error


def accepts(server: Any, raw: Any) -> bool:
    """True for a client's message that viser may handle. Never raises.

    Args:
        server: the `viser.ViserServer`; None while it is being made, when there are no controls yet.
        raw: the message as received.
    """
    import msgspec.msgpack
    from viser._messages import Message

    try:
        if not isinstance(raw, bytes):
            return False
        fields = msgspec.msgpack.decode(raw)
        kind = fields["type"]
        if kind == "ViewerCameraMessage":
            camera = vars(Message.deserialize(raw))
            sizes = {"wxyz": 4, "position": 3, "look_at": 3, "up_direction": 3}
            named = {"fov", "near", "far", "image_height", "image_width", *sizes}
            return all(_numbers(camera[name], sizes.get(name, 1)) for name in named)
        if kind == "CommandTriggerMessage":
            return isinstance(fields["uuid"], str) and len(fields) == 2
        if kind == "GuiUpdateMessage" and server is not None and set(fields) == {"type", "uuid", "updates"}:
            handle = server.gui._gui_input_handle_from_uuid.get(fields["uuid"])
            return (
                handle is not None and set(fields["updates"]) == {"value"} and fits(handle, fields["updates"]["value"])
            )
    except Exception:  # whatever a stranger's bytes make a decoder raise
        return False
    return False


def _numbers(value: Any, count: int) -> bool:
    """True for `count` finite numbers of a size that float32 holds."""
    values = value if isinstance(value, tuple) else (value,)
    return len(values) == count and all(_is_number(v) and abs(v) < 1e30 for v in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def fits(handle: Any, value: Any) -> bool:
    """True if a control of the panel can have this value: the same kind, within its range or among its options."""
    if hasattr(handle, "options"):
        return isinstance(value, str) and value in tuple(handle.options)
    if hasattr(handle, "min") and hasattr(handle, "max"):
        return _is_number(value) and handle.min <= value <= handle.max
    return isinstance(value, bool) and isinstance(handle.value, bool)


class _Checked:
    """A websocket connection whose `recv` drops messages that `accept` refuses. All else is the connection's own."""

    def __init__(self, connection: Any, accept: Callable[[Any], bool]):
        self._connection, self._accept = connection, accept

    async def recv(self) -> Any:
        while True:
            raw = await self._connection.recv()
            if self._accept(raw):
                return raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def titled(answer: Any, title: str) -> Any:
    """The response with viser's page, under another title."""
    is_packed = answer.headers.get("Content-Encoding") == "gzip"
    page = gzip.decompress(answer.body) if is_packed else answer.body
    page = page.replace(b"<title>Viser</title>", f"<title>{html.escape(title)}</title>".encode(), 1)
    answer.body = gzip.compress(page) if is_packed else page
    del answer.headers["Content-Length"]
    answer.headers["Content-Length"] = str(len(answer.body))
    return answer


def check_server(host: str, port: int) -> None:
    """ArgumentError for an address that cannot be listened on, DeviceError without viser."""
    try:
        import viser  # noqa: F401
        import websockets.asyncio.server  # noqa: F401
    except ImportError as error:
        raise DeviceError(f"viewer: found no viser, expected it: {install_command('viewer')}") from error
    check_address(host, port)


def guarded_server(host: str, port: int, label: str) -> tuple[Any, str]:
    """A `viser.ViserServer` behind the checks of this module, and the address to open in a browser.

    Args:
        host: address to listen on.
        port: port to listen on; if it is in use, the next free one is taken.
        label: title of the page.

    ArgumentError for an address that cannot be listened on, DeviceError without viser or for a version of it that
    does not serve through `websockets`.
    """
    check_server(host, port)
    import viser
    import websockets.asyncio.server as library

    gate, served = Gate(host), []
    made: list[Any] = []
    serve = library.serve
    quiet = logging.getLogger("websockets.batchnav")  # no traceback for a malformed request
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False

    def guarded(handler: Callable[[Any], Any], *places: Any, **options: Any) -> Any:
        inner = options["process_request"]

        def process(connection: Any, request: Any) -> Any:
            answer = inner(connection, request)
            public = answer is not None and "text/html" not in answer.headers.get("Content-Type", "")
            why = gate.refusal(request.headers, request.path, public)
            if why is not None:
                return connection.respond(http.HTTPStatus.FORBIDDEN, f"batchnav view: {why}\n")
            if answer is None:
                return None
            cookie = gate.cookie(request.path)
            if cookie is not None:
                answer = connection.respond(http.HTTPStatus.SEE_OTHER, "")
                answer.headers["Location"] = "/"
                answer.headers["Set-Cookie"] = cookie
            if "text/html" in answer.headers.get("Content-Type", ""):
                answer = titled(answer, label)
            for name, value in page_headers(request.headers["Host"]).items():
                answer.headers[name] = value
            return answer

        async def handle(connection: Any) -> None:
            await handler(_Checked(connection, lambda raw: accepts(made[0] if made else None, raw)))

        served.append(True)
        return serve(
            handle, *places, **{**options, "process_request": process, "max_size": MAX_MESSAGE, "logger": quiet}
        )  # fmt: skip

    # viser prints its address, without a token, before the page has anything to show.
    silent = mock.patch("rich.print", lambda *_, **__: None)
    with _CONSTRUCTION, silent, mock.patch.object(library, "serve", guarded):
        server = viser.ViserServer(host=host, port=port, label=label, verbose=False)
    if not served:
        server.stop()
        raise DeviceError(f"viewer: found viser {viser.__version__}, expected 1.1: pip install 'viser==1.1.*'")
    made.append(server)
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{server.get_port()}" + (f"/?token={gate.token}" if gate.token else "")
