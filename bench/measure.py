#!/usr/bin/env python3
"""Interleaved benchmark of ways into a sandbox. Python 3.9 and an ssh client.

usage: measure.py TEST [options] NAME=KIND:SPEC …

  ssh:ARGUMENTS      arguments of ssh up to and including the destination
  exec:PREFIX || PREFIX WITH TERMINAL
                     a command line; what to run is appended as one argument
  sh:COMMAND ;; CLEAN-UP
                     for start: run by sh -c; {i} is a number of its
                     own for every sample; the clean-up is not timed
  docker:CONTAINER   for api: exec through the Docker Engine API
  sandgate:SOCKET SANDBOX
                     for api: exec through Sandgate's HTTP API
  door:sandgate SOCKET [FOLDER COUNT]
  door:docker IMAGE LABEL
                     for first, pause, snapshot, fork, rate and crowd: the HTTP
                     API; FOLDER has COUNT sandboxes ready before each sample

Every round visits every target once, in rotating order. The samples of all
rounds go to --json FILE; report.py makes a table of such files.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import meter
import samples
from target import Target


def masters(targets, folder):
    """Opens one ControlMaster for each ssh target and waits until it answers."""
    opened = []
    for i, t in enumerate(targets):
        if t.kind != "ssh":
            continue
        t.options = ["-o", "ControlPath=%s/m%d" % (folder, i)]
        p = subprocess.Popen(
            ["ssh", "-N", "-o", "BatchMode=yes", "-o", "ControlMaster=yes"] + t.options + t.args,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        opened.append(p)
        end = time.time() + 20
        while meter.run(["ssh", "-O", "check"] + t.options + t.args, 5) != 0:
            if time.time() > end or p.poll() is not None:
                sys.exit("measure: no ControlMaster to %s" % t.name)
            time.sleep(0.05)
    return opened


def measure(o, targets, test):
    """{name: [sample or None, one for each round]}, and the noise of each round."""
    data = {t.name: [] for t in targets}
    noise = []
    for t in targets:
        for _ in range(o.warm):
            try:
                samples.warm(o.test, t, o)
            except Exception as e:
                print("   warming up %s: %s" % (t.name, e))
    for k in range(o.rounds):
        noise.append(meter.noise())
        at = k % len(targets)
        for t in targets[at:] + targets[:at]:
            try:
                data[t.name].append(test(t, o))
            except Exception as e:
                data[t.name].append(None)
                print("   round %d, %s: %s: %s" % (k, t.name, type(e).__name__, str(e)[:200]), flush=True)
    return data, noise


def table(o, targets, data, noise):
    base = targets[0].name
    print("\n%s, %d rounds; noise probe %.1f ms (p90 %.1f)" % (o.test, o.rounds, statistics.median(noise), meter.quantile(noise, 0.9)))
    print("%-22s %-16s %10s %10s %10s   %s" % ("", "", "median", "p10", "p90", "ratio to " + base))
    for t in targets:
        for m in dict.fromkeys(m for s in data[t.name] for m in (s or {})):
            v = [s[m] for s in data[t.name] if s and m in s]
            ratio = ""
            r = [s[m] / b[m] for s, b in zip(data[t.name], data[base]) if s and b and m in s and b.get(m)]
            if t.name != base and r:
                lo, hi = meter.bootstrap(r)
                ratio = "%.2f (%.2f–%.2f)" % (statistics.median(r), lo, hi)
            print("%-22s %-16s %10.4g %10.4g %10.4g   %s" % (t.name, m, statistics.median(v), meter.quantile(v, 0.1), meter.quantile(v, 0.9), ratio))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("test", choices=samples.TESTS)
    ap.add_argument("targets", nargs="+", type=Target)
    ap.add_argument("--rounds", "-n", type=int, default=20)
    ap.add_argument("--warm", type=int, default=1, help="samples before the first round that do not count")
    ap.add_argument("--bytes", type=int, default=256 << 20, help="down, up")
    ap.add_argument("--keys", type=int, default=200, help="echo")
    ap.add_argument("--sessions", type=int, default=50, help="fan")
    ap.add_argument("--throng", type=int, default=1000, help="throng: sessions at once")
    ap.add_argument("--batch", type=int, default=20, help="rate: sandboxes a sample")
    ap.add_argument("--crowd", type=int, default=200, help="crowd: sandboxes at once")
    ap.add_argument("--limit", type=float, default=120, help="seconds a sample may take")
    ap.add_argument("--json", default="")
    o = ap.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="measure")
    opened = []
    try:
        if o.test == "mux":
            opened = masters(o.targets, folder)
        data, noise = measure(o, o.targets, samples.TESTS[o.test])
    finally:
        for p in opened:
            p.terminate()
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:  # ssh may miss a signal that comes just before it sleeps
                p.kill()
                p.wait()
        shutil.rmtree(folder, ignore_errors=True)
    table(o, o.targets, data, noise)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"test": o.test, "rounds": o.rounds, "noise_ms": noise, "samples": data}, f)


if __name__ == "__main__":
    main()
