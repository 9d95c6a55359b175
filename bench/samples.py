"""The tests. Each takes one sample of one target and returns {metric: value}."""

import concurrent.futures
import functools
import itertools
import os
import re
import statistics
import subprocess
import time

import files
import life
import meter

COUNTER = itertools.count()

# What runs inside of a sandbox or a container, gVisor's processes ("exe")
# included: the sandbox's memory and not that of the server.
INSIDE = re.compile(r"^(cat|sh|sleep|exe|runsc.*|guest)$")

# Whose memory is counted at all, so that somebody else's compiler is not.
# Other sandboxes and containers that start meanwhile still are.
COUNTED = re.compile(r"^(sandgate|sshd|sshd-session|docker|dockerd|containerd|containerd-shim|runc|cat|sh|sleep|exe|runsc.*|guest)$")


def need(ok, what):
    if not ok:
        raise OSError(what)


def new(t, o):
    """A command over a connection of its own; for mux over one that is open."""
    with meter.Meter() as m:
        status = meter.run(t.argv("true"), o.limit)
    need(status == 0, "status %d" % status)
    return {"ms": m.wall * 1e3, "cpu_ms": m.busy * 1e3}


def api(t, o):
    with meter.Meter() as m:
        output = t.door.output(t.box, ["echo", "hi"])
    need(output == b"hi\n", "output %r" % output)
    return {"ms": m.wall * 1e3}


def start(t, o):
    i = "%d-%d" % (os.getpid(), next(COUNTER))
    with meter.Meter() as m:
        status = meter.run(["sh", "-c", t.command.replace("{i}", i)], o.limit)
    if t.clean:
        meter.run(["sh", "-c", t.clean.replace("{i}", i)], o.limit)
    need(status == 0, "status %d" % status)
    return {"ms": m.wall * 1e3, "cpu_ms": m.busy * 1e3}


def down(t, o):
    # Counting costs; that no byte is lost is the business of intact.
    with meter.Meter() as m:
        status = meter.run(t.argv("head -c %d /dev/zero" % o.bytes), o.limit)
    need(status == 0, "status %d" % status)
    return {"MiB/s": o.bytes / 2**20 / m.wall, "cpu_s": m.busy}


def up(t, o):
    with meter.Meter() as m:
        source = subprocess.Popen(["head", "-c", str(o.bytes), "/dev/zero"], stdout=subprocess.PIPE)
        try:
            status = meter.run(t.argv("cat >/dev/null"), o.limit, stdin=source.stdout)
        finally:
            source.stdout.close()
            source.kill()
            source.wait()
    need(status == 0, "status %d" % status)
    return {"MiB/s": o.bytes / 2**20 / m.wall, "cpu_s": m.busy}


def intact(t, o):
    """Correctness beside speed: every byte both ways, and the exit status."""

    def out(command, stdin=b""):
        p = subprocess.run(t.argv(command), input=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=o.limit)
        return p.returncode, p.stdout

    n = 16 << 20
    wrong = {
        "short_output": out("echo hi")[1] != b"hi\n",
        "long_output": len(out("head -c %d /dev/zero" % n)[1]) != n,
        "input": out("wc -c", b"\0" * n)[1].strip() != str(n).encode(),
        "exit_status": out("exit 7")[0] != 7,
    }
    return {"wrong_" + k: float(v) for k, v in wrong.items()}


READY = "echo RDY-$((1+1)); exec cat"


def echo(t, o):
    """From a key press to its echo by the process at the far end."""
    s = meter.Terminal(t.argv("stty raw -echo; " + READY, tty=True))
    took, missed = [], 0
    try:
        s.expect(b"RDY-2", o.limit)
        while s.read(0.3):
            pass
        for i in range(o.keys):
            key, seen = bytes([97 + i % 26]), b""
            pressed = time.perf_counter()
            s.type(key)
            while key not in seen:
                b = s.read(2.0)
                if not b:
                    break
                seen += b
            if key in seen:
                took.append((time.perf_counter() - pressed) * 1e3)
            else:
                missed += 1
            time.sleep(0.01)
        s.process.terminate()
    finally:
        s.close(5)
    need(not missed, "%d of %d keys not echoed" % (missed, o.keys))
    return {"p50_ms": meter.quantile(took, 0.5), "p99_ms": meter.quantile(took, 0.99)}


def fan(t, o, sessions=0, logins=0):
    """Many idle terminals at once: how fast they open, what each costs, and how
    long somebody else takes to get in meanwhile."""
    n = sessions or o.sessions

    def one(_):
        began = time.perf_counter()
        s = meter.Terminal(t.argv(READY, tty=True))
        try:
            s.expect(b"RDY-2", o.limit)
        except Exception:
            s.close(2)
            return None, 0
        return s, (time.perf_counter() - began) * 1e3

    before = meter.processes()
    with meter.Meter() as m, concurrent.futures.ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(one, range(n)))
    time.sleep(2)  # what opening needed and idling does not is given back
    after = meter.processes()
    entered = [new(t, o)["ms"] for _ in range(logins)] if all(s for s, _ in opened) else []
    # An ssh client is the user's; the client of an exec target is part of the
    # way in and counts.
    ignore = {os.getpid()}
    if t.kind == "ssh":
        ignore = meter.descendants(after, os.getpid()) | meter.descendants(before, os.getpid())
    sessions = [s for s, _ in opened if s]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda s: (s.process.terminate(), s.close(10)), sessions))
    time.sleep(1)
    need(len(sessions) == n, "opened %d of %d" % (len(sessions), n))
    costs = dict(split(meter.growth(before, after, ignore), n), open_all_s=m.wall)
    if entered:
        costs.update(login_ms=statistics.median(entered), login_worst_ms=max(entered))
    return costs


def reattach(t, o):
    """A session that a client was lost from: from the command line to its screen."""
    name = "bench%d" % next(COUNTER)
    user, _, host = t.args[-1].partition("@")

    def open_it():
        return meter.Terminal(["ssh", "-tt"] + t.options + t.args[:-1] + ["%s+%s@%s" % (user, name, host)])

    s = open_it()
    try:
        s.type(b"echo scr''een-$((1+1))\r")
        s.expect(b"screen-2", o.limit)
        s.process.kill()
    finally:
        s.close(5)
    with meter.Meter() as m:
        s = open_it()
        try:
            s.expect(b"screen-2", o.limit)
        except Exception:
            s.close(5)
            raise
    s.type(b"exit\r")
    s.close(20)
    return {"ms": m.wall * 1e3}


def split(by, n):
    by = {k: v for k, v in by.items() if COUNTED.match(k)}
    top = sorted(by.items(), key=lambda x: -x[1])[:6]
    print("   PSS KiB each: " + ", ".join("%s %.0f" % (k, v / n) for k, v in top if v / n >= 20), flush=True)
    return {
        "PSS_MiB_each": sum(by.values()) / 1024 / n,
        "server_MiB_each": sum(v for k, v in by.items() if not INSIDE.match(k)) / 1024 / n,
    }


TESTS = {
    "new": new,
    "mux": new,
    "api": api,
    "start": start,
    "down": down,
    "up": up,
    "intact": intact,
    "echo": echo,
    "fan": fan,
    "throng": lambda t, o: fan(t, o, sessions=o.throng, logins=20),
    "sftp-put": files.put,
    "sftp-get": files.get,
    "reattach": reattach,
    "first": life.first,
    "pause": life.pause,
    "pause256": functools.partial(life.pause, memory=256),
    "snapshot10": functools.partial(life.snapshot, megabytes=10),
    "snapshot500": functools.partial(life.snapshot, megabytes=500),
    "fork": life.fork,
    "rate2": functools.partial(life.rate, parallel=2),
    "rate4": functools.partial(life.rate, parallel=4),
    "crowd": life.crowd,
}


def warm(test, t, o):
    """Something cheap that loads what the test will use."""
    if test in ("fan", "throng", "echo", "down", "up", "intact"):
        meter.run(t.argv("true"), o.limit)
    elif test in ("crowd", "rate2", "rate4"):
        life.first(t, o)
    elif test == "snapshot500":
        life.snapshot(t, o, megabytes=10)
    else:
        TESTS[test](t, o)
