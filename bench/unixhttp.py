"""HTTP over a unix socket, as client libraries speak it."""

import http.client
import json
import socket


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class API:
    """Keeps one connection open, as a client library does."""

    def __init__(self, path):
        self.path = path
        self.http = UnixHTTP(path)

    def call(self, method, path, body=None, connection=None):
        c = connection or self.http
        c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        b = r.read()
        if r.status >= 300:
            raise OSError("%s %s: %d %s" % (method, path, r.status, b[:200]))
        return b
