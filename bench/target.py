"""A target: one way to run a command somewhere."""

import http.client
import json
import shlex
import socket
import urllib.parse

OPTIONS = ["-o", "BatchMode=yes", "-o", "ObscureKeystrokeTiming=no"]


class Target:
    def __init__(self, text):
        self.name, rest = text.split("=", 1)
        self.kind, spec = rest.split(":", 1)
        self.options = []
        if self.kind == "ssh":
            self.args = ["-o", "IgnoreUnknown=ObscureKeystrokeTiming"] + OPTIONS + shlex.split(spec)
        elif self.kind == "exec":
            parts = spec.split("||")
            self.plain, self.terminal = shlex.split(parts[0]), shlex.split(parts[-1])
        elif self.kind == "sh":
            self.command, _, self.clean = spec.partition(" ;; ")
        elif self.kind == "docker":
            self.api = DockerAPI(spec)
        elif self.kind == "sandgate":
            self.api = SandgateAPI(*shlex.split(spec))
        else:
            raise ValueError("unknown kind in " + text)

    def argv(self, command, tty=False):
        if self.kind == "exec":
            return (self.terminal if tty else self.plain) + [command]
        return ["ssh", "-tt" if tty else "-T"] + self.options + self.args + [command]


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


class DockerAPI(API):
    """What a Docker client does for `exec`: create, start and read, inspect."""

    def __init__(self, container):
        super().__init__("/var/run/docker.sock")
        self.container = container

    def execute(self, command):
        made = json.loads(self.call("POST", "/v1.40/containers/%s/exec" % self.container, {"Cmd": command, "AttachStdout": True, "AttachStderr": True}))
        stream = UnixHTTP(self.path)  # the engine takes the connection over
        try:
            output = self.call("POST", "/v1.40/exec/%s/start" % made["Id"], {"Detach": False, "Tty": False}, stream)
        finally:
            stream.close()
        end = json.loads(self.call("GET", "/v1.40/exec/%s/json" % made["Id"]))
        return end["ExitCode"], output


class SandgateAPI(API):
    """Execute, read the output to its end, ask how it ended."""

    def __init__(self, path, sandbox):
        super().__init__(path)
        self.sandbox = sandbox

    def execute(self, command):
        made = json.loads(self.call("POST", "/sandbox/%s/execute" % self.sandbox, {"command": command}))["data"]
        url = urllib.parse.urlsplit(made["stdoutStreamUrl"])
        output = self.call("GET", url.path + ("?" + url.query if url.query else ""))
        end = json.loads(self.call("GET", "/sandbox/execution/%s?wait=30s" % made["executionId"]))["data"]
        return end.get("exitCode"), output
