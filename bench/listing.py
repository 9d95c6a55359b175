#!/usr/bin/env python3
"""listing.py SOCKET DATABASE: how long a page of a long list takes.

Records many sandboxes beside the running server, in its own database, and asks
for pages of them through the API, with each filter and in each order. Most of
them have ended, as on an old server, one in ten lives; those are of an engine
that the server has not, so that it looks for none of them. Use a server of its
own for this: the records stay.
"""

import argparse
import json
import os
import random
import socket
import sqlite3
import struct
import time
import urllib.parse

import door
import meter

LIVE = ["idle", "running", "paused"]
ALL = "creating,idle,running,paused,stopping,suspended,terminated,failed,deleted"
FILTERS = {
    "what lives or failed": {},
    "everything": {"status": ALL},
    "live": {"live": "true"},
    "failed": {"status": "failed"},
    "deleted": {"deletedOnly": "true"},
    "oneshot": {"mode": "oneshot"},
    "one project": {"projectId": "p7"},
    "project, mode and status": {"projectId": "p7", "mode": "oneshot", "status": "failed,idle"},
    "one name": {"name": "name-4711"},
}
ORDERS = ["name", "created", "updated", "status", "mode", "execution_count"]


def fill(database, like, n):
    """Copies the record of one sandbox, changed as sandboxes differ."""
    db = sqlite3.connect(database, timeout=60, isolation_level=None)
    columns = [row[1] for row in db.execute("PRAGMA table_info(sandboxes)") if row[1] != "changed"]
    record = dict(zip(columns, db.execute("SELECT %s FROM sandboxes WHERE id = ?" % ", ".join(columns), [like]).fetchone()))
    r, day = random.Random(1), 86400 * 10**9
    db.execute("BEGIN IMMEDIATE")
    insert = "INSERT INTO sandboxes (%s) VALUES (%s)" % (", ".join(columns), ", ".join("?" * len(columns)))
    for i in range(n):
        live = i > n * 9 // 10 or i % 1000 == 0
        made = record["created_at"] - 300 * day + i * 200 * day // n
        one = dict(
            record,
            id="sbx_%012d" % (i * 7919 % n),
            name="name-%d" % i,
            owner="big" if i % 2 else "owner%d" % (i // 2 % 500),
            project="p%d" % (i % 100),
            mode="interactive" if i % 3 else "oneshot",
            status=LIVE[i % 3] if live else "failed" if i % 100 == 1 else ["terminated", "deleted"][i % 2],
            driver="elsewhere",
            executions=i % 50,
            created_at=made,
            updated_at=made + r.randrange(90 * day),
            idle_timeout=0,
        )
        db.execute(insert, list(one.values()))
    db.execute("COMMIT")
    db.close()


class Processor:
    """Milliseconds of processor time that the server has had: what a page costs
    it, however busy the machine is with others."""

    def __init__(self, api):
        api.http.connect()
        peer = api.http.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.tasks = "/proc/%d/task/" % struct.unpack("3i", peer)[0]

    def used(self):
        total = 0
        for task in os.listdir(self.tasks):
            try:
                with open(self.tasks + task + "/schedstat") as f:
                    total += int(f.read().split()[0])
            except (OSError, IndexError):
                pass  # it has ended
        return total / 1e6


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("socket")
    ap.add_argument("database")
    ap.add_argument("--records", type=int, default=100_000)
    ap.add_argument("--pages", "-n", type=int, default=40, help="of each filter in each order")
    ap.add_argument("--json", default="")
    o = ap.parse_args()

    d = door.Sandgate(o.socket)
    like = d.create()
    d.clear()
    began = time.perf_counter()
    fill(o.database, like, o.records)
    filled = time.perf_counter() - began
    total = json.loads(d.api.call("GET", "/sandbox?limit=1&status=" + ALL))["data"]["total"]
    if total < o.records:
        raise SystemExit("listing: the server lists %d of %d" % (total, o.records))

    processor = Processor(d.api)
    took, noise = {what: [] for what in FILTERS}, []
    for page in range(o.pages):
        noise.append(meter.noise())
        for what, want in FILTERS.items():
            for i, order in enumerate(ORDERS):
                q = dict(want, sort=order, direction=["asc", "desc"][(page + i) % 2], limit=50, offset=page % 4 * 50)
                path, used = "/sandbox?" + urllib.parse.urlencode(q), processor.used()
                began = time.perf_counter()
                d.api.call("GET", path)
                ms = (time.perf_counter() - began) * 1e3
                took[what].append({"ms": ms, "cpu_ms": processor.used() - used, "order": order + " " + q["direction"]})

    print("\nlist, %d records made in %.1f s, %d pages each; noise probe %.1f ms (p90 %.1f)" % (total, filled, o.pages * len(ORDERS), meter.quantile(noise, 0.5), meter.quantile(noise, 0.9)))
    for what, samples in took.items():
        ms = [s["ms"] for s in samples]
        cpu = [s["cpu_ms"] for s in samples]
        slow = max(samples, key=lambda s: s["ms"])
        figures = tuple(meter.quantile(v, p) for v in (ms, cpu) for p in (0.5, 0.99))
        print("%-26s p50 %6.2f ms  p99 %6.2f ms; of a processor %6.2f and %6.2f ms; slowest %6.2f ms by %s" % ((what,) + figures + (slow["ms"], slow["order"])))
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"test": "list", "rounds": o.pages, "noise_ms": noise, "samples": took}, f)


if __name__ == "__main__":
    main()
