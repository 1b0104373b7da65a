"""An HTTP server for tests of downloads: byte ranges, redirects, passwords, broken connections."""

import hashlib
import re
from http.server import BaseHTTPRequestHandler

CONTENT = bytes(range(256)) * 20_000
"""A large file."""


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files` with byte ranges; breaks off where `server.broken` says, asks for `server.login`.

    With `server.commit` it names the commit of a repository, as Hugging Face does.
    """

    def do_HEAD(self):
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.server.commit)
        self.send_header("Content-Length", str(self.server.sizes.get(self.path, len(data))))
        self.end_headers()

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, dict(self.headers)))
        if self.path in server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved[self.path])
            self.end_headers()
            return
        data = server.files.get(self.path)
        if data is None:
            self.send_error(404)
        elif server.login and self.headers.get("Authorization") != server.login:
            self.send_error(401)
        else:
            self.answer(data)

    def answer(self, data):
        server, tag = self.server, f'"{hashlib.md5(data).hexdigest()}"'
        wanted = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("Range", ""))
        begin = int(wanted[1]) if wanted and self.headers.get("If-Range", tag) == tag else 0
        if begin >= len(data) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        self.send_header("ETag", tag)
        if begin:
            last = min(len(data), begin + (server.piece or len(data))) - 1
            self.send_header("Content-Range", server.range or f"bytes {begin}-{last}/{len(data)}")
        sent = min(len(data) - begin, server.piece) if begin and server.piece else len(data) - begin
        self.send_header("Content-Length", server.length or str(sent))
        if self.path in server.links:
            self.send_header("Link", server.links[self.path])
        self.end_headers()
        end = server.broken.pop(0) if server.broken else len(data)
        self.wfile.write(data[begin : min(max(end, begin), begin + sent)])
        if end < len(data):
            self.close_connection = True

    def log_message(self, *_):
        pass
