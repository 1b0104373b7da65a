"""The viewer's server against web pages of strangers, and against clients that send what they like."""

import asyncio
import gzip
import html
import http.client
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from test_session import CONFIG, bank  # noqa: F401 (a fixture)
from worlds import episodes_on, write_floor

from batchnav.data.formats import EpisodeDataset
from batchnav.errors import ArgumentError, printable
from batchnav.view.viewer.app import Viewer
from batchnav.view.viewer.session import Session

viser = pytest.importorskip("viser", reason="the viewer's library is not installed")
msgspec = pytest.importorskip("msgspec")
websockets = pytest.importorskip("websockets")


def opened(bank, **place):  # noqa: F811
    episodes = EpisodeDataset(episodes_on(bank.scenes[0].name))
    return Viewer(Session(bank, episodes, {}, CONFIG), **{"port": 18480, **place})


@pytest.fixture(scope="module")
def viewer(bank):  # noqa: F811
    made = opened(bank)
    yield made
    made.server.stop()


def talk(viewer, messages=(), path="/", wait=0.2, **headers):
    """The reply's size after sending messages, or the HTTP status of a refused handshake."""

    async def run():
        address = f"ws://127.0.0.1:{viewer.server.get_port()}{path}"
        protocol = [f"viser-v{viser.__version__}"]
        connected = websockets.connect(address, subprotocols=protocol, additional_headers=headers, max_size=None)
        async with connected as socket:
            first = await socket.recv()
            for message in messages:
                await socket.send(message)
            await asyncio.sleep(wait)
            await socket.ping()
            return len(first)

    try:
        return asyncio.run(run())
    except websockets.exceptions.InvalidStatus as refused:
        return refused.response.status_code


def fetch(viewer, path="/", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{viewer.server.get_port()}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_the_page_has_the_programs_title(viewer, encoding):
    request = urllib.request.Request(
        f"http://127.0.0.1:{viewer.server.get_port()}/", headers={"Accept-Encoding": encoding}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        body, length = answer.read(), int(answer.headers["Content-Length"])
    assert len(body) == length
    page = gzip.decompress(body) if encoding == "gzip" else body
    assert b"<title>batchnav</title>" in page and b"<title>Viser</title>" not in page


def raw_request(viewer, path):
    """The answer to a request, without following redirections."""
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server.get_port(), timeout=10)
    connection.request("GET", path)
    return connection.getresponse()


def raw_handshake(viewer, *lines):
    """HTTP status of a websocket handshake with these headers; 0 if the server closes the connection."""
    import socket

    port = viewer.server.get_port()
    protocol = f"Sec-WebSocket-Protocol: viser-v{viser.__version__}"
    head = ["GET / HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", protocol]  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
        wire.sendall("\r\n".join([*head, *(line.replace("PORT", str(port)) for line in lines), "", ""]).encode())
        return int((wire.recv(100).split() or [0, 0])[1])


def message(kind, **fields):
    return msgspec.msgpack.encode({"type": kind, **fields})


def update(handle, value, prop="value"):
    return message("GuiUpdateMessage", uuid=handle._impl.uuid, updates={prop: value})


CAMERA = {
    "wxyz": [1.0, 0, 0, 0], "position": [0, 1, 2], "fov": 1.0, "near": 0.01, "far": 100.0, "image_height": 100,
    "image_width": 100, "look_at": [0, 0, 0], "up_direction": [0, 1, 0],
}  # fmt: skip


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "127.0.0.1.evil.example", "", "a]["])
def test_other_names_are_refused(viewer, host):
    assert raw_handshake(viewer, f"Host: {host}") in (400, 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost:PORT", "file://"]
)
def test_other_origins_are_refused(viewer, origin):
    assert raw_handshake(viewer, "Host: 127.0.0.1:PORT", f"Origin: {origin}") == 403


def test_repeated_headers_are_refused(viewer):
    own = "Origin: http://127.0.0.1:PORT"
    assert raw_handshake(viewer, "Host: 127.0.0.1:PORT", own, "Origin: http://evil.example") in (400, 403)
    assert raw_handshake(viewer, "Host: 127.0.0.1:PORT", "Host: evil.example") in (400, 403)


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "localhost:9000", "[::1]:9000", "LOCALHOST"])
def test_the_own_page_connects(viewer, host):
    """Also through a forwarded port, which has another number."""
    assert raw_handshake(viewer, f"Host: {host}", f"Origin: http://{host}") == 101
    assert raw_handshake(viewer, f"Host: {host}") == 101


def test_the_page_itself_checks_the_host(viewer):
    assert fetch(viewer)[0] == 200
    status, text = fetch(viewer, Host="evil.example")
    assert status == 403 and "localhost" in text


def test_the_share_tunnel_stays_closed(viewer, monkeypatch):
    asked = []
    monkeypatch.setattr(viewer.server, "request_share_url", lambda: asked.append(1))
    talk(viewer, [message("ShareUrlRequest"), message("ViewerCameraMessage", **CAMERA), message("ShareUrlRequest")])
    assert asked == []


@pytest.mark.parametrize("value", ["0", "abc", "-5", "nan", 5, None, ["10"]])
def test_speeds_are_options(viewer, value):
    talk(viewer, [update(viewer.speed, value)])
    assert viewer.speed.value == "10"


@pytest.mark.parametrize("value", [1e300, -1, float("nan"), float("inf"), "1", 2**63, None, True, []])
def test_sliders_keep_their_range(viewer, value):
    """Also before the client's camera; later clients still get the scene."""
    before = viewer.episode.value
    talk(viewer, [update(viewer.episode, value), message("ViewerCameraMessage", **CAMERA)])
    assert viewer.episode.value == before
    assert talk(viewer) > 100


def test_only_values_are_set(viewer):
    label = viewer.episode.label
    talk(viewer, [update(viewer.episode, "x", "label"), update(viewer.episode, 10**6, "max")])
    assert viewer.episode.label == label and viewer.episode.max == 2


def test_controls_work(viewer):
    camera = message("ViewerCameraMessage", **CAMERA)
    talk(viewer, [camera, update(viewer.speed, "20"), update(viewer.cut, 3), update(viewer.options["navmesh"], False)])
    assert (viewer.speed.value, viewer.cut.value, viewer.options["navmesh"].value) == ("20", 3.0, False)
    talk(viewer, [camera, update(viewer.episodes, "next")], wait=3.0)
    assert viewer.session.number == 1
    talk(viewer, [camera, update(viewer.play, True)], wait=1.0)
    assert viewer.playing
    viewer.toggle()
    viewer.speed.value = "10"


def test_malformed_messages_change_nothing(viewer, capfd):
    deep = b"\x91" * 60_000 + b"\xc0"
    bad_camera = {**CAMERA, "wxyz": [float("nan")] * 4}
    bad = [b"", b"\xc1", b"\xc0", deep, "text", message("Nothing"), message("GuiUpdateMessage"), message(["x"]),
           message("ViewerCameraMessage"), message("ViewerCameraMessage", **bad_camera),
           message("ViewerCameraMessage", **{**CAMERA, "position": "abc"}), message("CommandTriggerMessage", uuid={}),
           message("GuiUpdateMessage", uuid=viewer.speed._impl.uuid, updates=[]),
           message("GuiUpdateMessage", uuid=[], updates={"value": 1})]  # fmt: skip
    talk(viewer, bad)
    raw_handshake(viewer, "Host: 127.0.0.1:PORT", "Content-Length: -1", "Origin: null")
    assert talk(viewer) > 100
    assert "Traceback" not in "".join(capfd.readouterr())


def test_other_addresses_require_the_token(bank):  # noqa: F811
    viewer = opened(bank, host="0.0.0.0", port=18490)
    try:
        token = viewer.url.partition("?token=")[2]
        assert len(token) >= 24
        assert talk(viewer) == 403 and talk(viewer, path="/?token=wrong") == 403
        status, text = fetch(viewer)
        assert status == 403 and "token" in text
        answer = raw_request(viewer, f"/?token={token}")
        assert answer.status == 303 and answer.headers["Location"] == "/"  # the token leaves the address
        assert "HttpOnly; SameSite=Lax" in answer.headers["Set-Cookie"]
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        status, headers = fetch(viewer, Cookie=cookie)
        assert status == 200 and headers["Referrer-Policy"] == "no-referrer"
        host = f"127.0.0.1:{viewer.server.get_port()}"
        policy = headers["Content-Security-Policy"]
        assert f"connect-src 'self' data: blob: ws://{host} wss://{host};" in policy and "frame-src 'none'" in policy
        assert talk(viewer, Cookie=cookie) > 100
        assert talk(viewer, Cookie=cookie, Origin="http://evil.example") == 403
    finally:
        viewer.server.stop()


MARKUP = (
    "<img src=x onerror=alert(1)>", "</script><!--<script", "**b** `c` [a](javascript:b)", "{1 + 1}", "\x1b[31m",
)  # fmt: skip


@pytest.mark.parametrize("text", MARKUP)
def test_text_of_files_is_no_markup_of_the_panel(bank, text):  # noqa: F811
    episodes = EpisodeDataset([replace(episodes_on(bank.scenes[0].name)[0], episode_id=text)])
    viewer = Viewer(Session(bank, episodes, {}, CONFIG), port=18495)
    try:
        shown = viewer.status.content
        head = shown.partition(" in ")[0].removeprefix("episode ")
        assert html.unescape(head) == printable(text)
        assert not set(head) & set("<>*_`[](){}!\\\x1b")
    finally:
        viewer.server.stop()


@pytest.mark.parametrize("name, value", [("port", -1), ("port", 70000), ("host", "192.0.2.1"), ("host", "a\0b")])
def test_addresses_that_cannot_be_served(bank, name, value):  # noqa: F811
    with pytest.raises(ArgumentError, match=r"^(port|host): found"):
        opened(bank, **{name: value})


def test_an_interrupt_ends_the_command(tmp_path):
    scene = write_floor(tmp_path / "floor.ply")
    command = [sys.executable, "-m", "batchnav", "view", str(scene), "--port", "18495", "--device", "cpu"]
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # background shells ignore it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard) as process:
        assert process.stdout.readline().startswith("http://127.0.0.1:")  # the only address that is printed
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and "Traceback" not in errors
