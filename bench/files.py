"""Files through sftp, which each target has to serve itself."""

import os
import subprocess
import tempfile

import meter

REMOTE = "/tmp/bench-file"


def sftp(t, o, command):
    """Runs one command of the sftp client over a connection of its own."""
    args, port = list(t.args), "22"
    while "-p" in args:
        i = args.index("-p")
        port = args[i + 1]
        del args[i : i + 2]
    argv = ["sftp", "-q", "-P", port, "-b", "-"] + t.options + args
    with meter.Meter() as m:
        p = subprocess.run(argv, input=command.encode() + b"\n", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=o.limit)
    if p.returncode:
        raise OSError("status %d: %s" % (p.returncode, p.stderr.decode("utf-8", "replace").strip()))
    return m


def put(t, o):
    with tempfile.NamedTemporaryFile() as f:
        f.truncate(o.bytes)
        m = sftp(t, o, "put %s %s" % (f.name, REMOTE))
    return {"MiB/s": o.bytes / 2**20 / m.wall, "cpu_s": m.busy}


def get(t, o):
    """Needs a file of o.bytes there; put leaves one."""
    if meter.run(t.argv("test $(stat -c %%s %s) = %d" % (REMOTE, o.bytes)), o.limit):
        put(t, o)
    with tempfile.TemporaryDirectory() as here:
        m = sftp(t, o, "get %s %s" % (REMOTE, os.path.join(here, "file")))
        if os.path.getsize(os.path.join(here, "file")) != o.bytes:
            raise OSError("it is not all here")
    return {"MiB/s": o.bytes / 2**20 / m.wall, "cpu_s": m.busy}
