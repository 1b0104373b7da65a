"""Headless Chromium for tests of pages, driven through the Chrome DevTools protocol."""

import contextlib
import itertools
import json
import subprocess
import time

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--remote-debugging-port=0",
)  # fmt: skip
PATIENCE = 300.0
"""Time limit, seconds; an idle machine needs two."""


class Page:
    """A page in the browser; `run` evaluates JavaScript."""

    def __init__(self, socket):
        self.socket, self.numbers = socket, itertools.count(1)

    def call(self, method, **parameters):
        """Send a command of the protocol; returns its result."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv(timeout=PATIENCE))).get("id") != number:
            pass
        return answer["result"]

    def run(self, script):
        """Evaluate an expression; a JavaScript exception raises AssertionError."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url, width, height=900):
        """Load an address at a width in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState == 'complete'")

    def wait_for(self, condition):
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < until, condition
            time.sleep(0.1)


@contextlib.contextmanager
def browser(folder):
    """A page in a Chromium with its profile in `folder`."""
    process = subprocess.Popen(
        ["chromium", *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until, told = time.monotonic() + PATIENCE, folder / "DevToolsActivePort"
        while not (told.exists() and told.read_text().count("\n")):
            assert time.monotonic() < until and process.poll() is None, "chromium does not start"
            time.sleep(0.1)
        port, path = told.read_text().split("\n")[:2]
        with pytest.importorskip("websockets.sync.client").connect(
            f"ws://127.0.0.1:{port}{path}", max_size=None
        ) as whole:
            target = Page(whole).call("Target.createTarget", url="about:blank")["targetId"]
            with pytest.importorskip("websockets.sync.client").connect(
                f"ws://127.0.0.1:{port}/devtools/page/{target}", max_size=None
            ) as socket:
                yield Page(socket)
    finally:
        process.kill()
        process.wait()
