"""A server of files for tests of downloads."""

import functools
import threading
from http.server import ThreadingHTTPServer

import pytest
from file_server import Handler

from batchnav.data import download as downloading


@pytest.fixture
def server(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.moved, server.links, server.broken, server.requests = {}, {}, {}, [], []
    server.login = server.range = server.length = ""
    server.piece, server.commit, server.sizes = 0, "", {}
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=functools.partial(server.serve_forever, 0.01), daemon=True).start()
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)
    yield server
    server.shutdown()
    server.server_close()
