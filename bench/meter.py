"""What a benchmark needs to measure: clocks, processes, terminals, statistics."""

import glob
import hashlib
import os
import pty
import random
import re
import select
import statistics
import subprocess
import threading
import time

HZ = os.sysconf("SC_CLK_TCK")


def cpu_busy():
    """Seconds all processors of this machine have been busy, whoever used them."""
    f = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(f) - f[3] - f[4]) / HZ


class Meter:
    """Wall time and busy time of the machine over a with-block."""

    def __enter__(self):
        self._busy = cpu_busy()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self._start
        self.busy = cpu_busy() - self._busy


def run(argv, limit, stdin=None, stdout=None):
    """Runs argv and returns its status; kills it after limit seconds.

    It blocks in wait with a watchdog beside it: Popen.wait(timeout) polls in
    steps of up to 50 ms and would round every result.
    """
    p = subprocess.Popen(argv, stdin=stdin or subprocess.DEVNULL, stdout=stdout or subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    dog = threading.Timer(limit, p.kill)
    dog.daemon = True
    dog.start()
    try:
        return p.wait()
    finally:
        dog.cancel()


def noise():
    """Milliseconds for a fixed piece of work: its spread is the machine's noise."""
    start = time.perf_counter()
    h, block = hashlib.sha256(), b"\0" * 65536
    for _ in range(400):
        h.update(block)
    return (time.perf_counter() - start) * 1e3


def quantile(values, p):
    v = sorted(values)
    k = (len(v) - 1) * p
    i = int(k)
    return v[i] + (v[min(i + 1, len(v) - 1)] - v[i]) * (k - i)


def bootstrap(values, n=2000):
    """The 95 % interval of the median."""
    r = random.Random(1)
    m = sorted(statistics.median(r.choices(values, k=len(values))) for _ in range(n))
    return m[int(n * 0.025)], m[int(n * 0.975)]


class Terminal:
    """A program on a terminal of its own, and us at the keyboard.

    The terminal is left cooked, as a user's is: an ssh client makes it raw
    itself and sends these modes to the server.
    """

    def __init__(self, argv):
        self.eof = False
        self.fd, other = pty.openpty()
        self.process = subprocess.Popen(argv, stdin=other, stdout=other, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(other)

    def read(self, timeout):
        """What is there; b"" when nothing came in time, None at the end."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return b"" if self.process.poll() is None else None
        try:
            b = os.read(self.fd, 65536)
        except OSError:
            b = b""
        self.eof = not b
        return b or None

    def expect(self, what, timeout):
        seen, end = b"", time.time() + timeout
        while what not in seen:
            if time.time() > end:
                raise TimeoutError("no %r in %r" % (what, seen[-200:]))
            b = self.read(0.5)
            if b is None:
                raise EOFError("closed before %r; had %r" % (what, seen[-200:]))
            seen += b

    def type(self, b):
        os.write(self.fd, b)

    def close(self, wait=20):
        if self.process.poll() is None and self.fd >= 0 and not self.eof:
            os.close(self.fd)
            self.fd = -1
        dog = threading.Timer(wait, self.process.kill)
        dog.daemon = True
        dog.start()
        self.process.wait()
        dog.cancel()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def processes():
    """pid → (command name, parent, PSS in KiB) of every process we may look at."""
    found = {}
    for d in glob.glob("/proc/[0-9]*"):
        try:
            stat = open(d + "/stat").read()
            memory = open(d + "/smaps_rollup").read()
            end = stat.rindex(")")
            pss = int(re.search(r"^Pss:\s+(\d+)", memory, re.M).group(1))
            found[int(d[6:])] = (stat[stat.index("(") + 1 : end], int(stat[end + 2 :].split()[1]), pss)
        except (OSError, AttributeError, ValueError):
            pass  # it ended while we looked, or is a kernel thread
    return found


def descendants(table, root):
    children = {}
    for pid, row in table.items():
        children.setdefault(row[1], []).append(pid)
    seen, todo = set(), [root]
    while todo:
        pid = todo.pop()
        seen.add(pid)
        todo += children.get(pid, [])
    return seen


def growth(before, after, ignore):
    """KiB of PSS that came into being between two tables, by command name."""
    by = {}
    for pid, (name, _, pss) in after.items():
        if pid not in ignore:
            by[name] = by.get(name, 0) + pss - before.get(pid, (0, 0, 0))[2]
    for pid, (name, _, pss) in before.items():
        if pid not in after and pid not in ignore:
            by[name] = by.get(name, 0) - pss
    return by


def belonging(table, marks, names):
    """Those of a table that have one of the names, or a mark in their command
    line or that of a process above them."""
    marked = {pid: True for pid, row in table.items() if row[0] in names}

    def look(pid):
        if pid not in marked:
            marked[pid] = False  # whatever comes: no circle
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as f:
                    line = f.read().decode("utf-8", "replace")
            except OSError:
                line = ""
            marked[pid] = any(m in line for m in marks) or pid in table and look(table[pid][1])
        return marked[pid]

    return {pid: row for pid, row in table.items() if look(pid)}
