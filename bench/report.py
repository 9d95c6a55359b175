#!/usr/bin/env python3
"""report.py FOLDER: one table of what measure.py and listing.py wrote there, beside the goals."""

import json
import os
import statistics
import sys

import meter

# (what is measured, test, metric, ours, peer, sign, goal). The goal bounds the
# ratio to the peer; with "own" it bounds our own number. A peer may be followed
# by "|" and what it does that we compare with.
GOALS = [
    ("create → first output", "start", "ms", "sandgate", "docker run + exec", "<=", 0.35),
    ("  from the warm pool", "start", "ms", "sandgate warm", "docker run + exec", "<=", 0.1),
    ("  through the API", "first", "ms", "sandgate", "docker", "<=", 0.35),
    ("  through the API, warm pool", "first", "ms", "sandgate warm", "docker", "<=", 0.1),
    ("one-shot run", "start", "ms", "sandgate run", "docker run --rm", "", 0),
    ("creates per second, 2 at once", "rate2", "each_s", "sandgate", "docker|run -d", "", 0),
    ("  4 at once", "rate4", "each_s", "sandgate", "docker|run -d", "", 0),
    ("  docker engine, 4 at once", "rate4", "each_s", "sandgate on docker", "docker|run -d", "", 0),
    ("pause with memory", "pause", "pause_ms", "sandgate", "docker|stop", "<= own", 80),
    ("resume with memory", "pause", "resume_ms", "sandgate", "docker|start", "<= own", 130),
    ("  to the first output", "pause", "resume_output_ms", "sandgate", "docker|start + exec", "", 0),
    ("pause with 256 MiB of memory", "pause256", "pause_ms", "sandgate", "docker|stop", "", 0),
    ("resume with 256 MiB of memory", "pause256", "resume_ms", "sandgate", "docker|start", "", 0),
    ("pause without memory", "pause", "pause_ms", "sandgate on docker", "docker|stop", "", 0),
    ("resume without memory", "pause", "resume_ms", "sandgate on docker", "docker|start", "", 0),
    ("snapshot of 10 MB", "snapshot10", "snapshot_ms", "sandgate", "docker|commit", "", 0),
    ("  it holds the sandbox", "snapshot10", "held_ms", "sandgate", "docker|commit", "<= own", 100),
    ("  create from it → first output", "snapshot10", "from_ms", "sandgate", "docker|run + exec", "", 0),
    ("  docker engine: snapshot", "snapshot10", "snapshot_ms", "sandgate on docker", "docker|commit", "", 0),
    ("  docker engine: create from it", "snapshot10", "from_ms", "sandgate on docker", "docker|run + exec", "", 0),
    ("snapshot of 500 MB", "snapshot500", "snapshot_ms", "sandgate", "docker|commit", "", 0),
    ("  it holds the sandbox", "snapshot500", "held_ms", "sandgate", "docker|commit", "", 0),
    ("  create from it → first output", "snapshot500", "from_ms", "sandgate", "docker|run + exec", "", 0),
    ("fork of 10 MB → first output", "fork", "ms", "sandgate", "docker|commit + run + exec", "", 0),
    ("  docker engine", "fork", "ms", "sandgate on docker", "docker|commit + run + exec", "", 0),
    ("exec through the API", "api", "ms", "sandgate", "docker", "<=", 0.15),
    ("ssh … true, new connection", "new", "ms", "sandgate", "forcecommand", "<=", 0.1),
    ("  the peer on curve25519", "new", "ms", "sandgate", "forcecommand-curve", "<=", 0.1),
    ("  both on curve25519", "new", "ms", "sandgate-curve", "forcecommand-curve", "<=", 0.1),
    ("ssh … true, ControlMaster", "mux", "ms", "sandgate", "forcecommand", "<=", 0.12),
    ("  sshd in the container", "mux", "ms", "sandgate", "sshd-inside", "<=", 1.1),
    ("download", "down", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("  through docker exec", "down", "MiB/s", "sandgate", "forcecommand", ">=", 2),
    ("upload", "up", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("  through docker exec", "up", "MiB/s", "sandgate", "forcecommand", ">=", 2),
    ("sftp get", "sftp-get", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("sftp put", "sftp-put", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("keystroke echo, p50", "echo", "p50_ms", "sandgate", "sshd-inside", "<=", 1.5),
    ("keystroke echo, p99", "echo", "p99_ms", "sandgate", "sshd-inside", "<=", 1.5),
    ("idle session, server memory", "fan", "server_MiB_each", "sandgate", "forcecommand", "<=", 0.03),
    ("idle session, all memory", "fan", "PSS_MiB_each", "sandgate", "forcecommand", "", 0),
    ("  of 1,000 at once", "throng", "server_MiB_each", "sandgate-curve", "sshd-inside", "", 0),
    ("ssh … true beside 1,000 idle sessions", "throng", "login_ms", "sandgate-curve", "sshd-inside", "", 0),
    ("a session reattached, to its screen", "reattach", "ms", "sandgate", "", "", 0),
    ("idle sandbox of many, PSS", "crowd", "PSS_MiB_each", "sandgate", "docker", "<= own", 20),
    ("idle sandbox of many, MemAvailable", "crowd", "available_MiB_each", "sandgate", "docker", "<= own", 20),
]


def unit(metric):
    return {"each_s": "/s", "MiB/s": "MiB/s"}.get(metric, "MiB" if "_MiB_" in metric else "ms")


def number(x):
    return "%.0f" % x if abs(x) >= 1000 else "%.3g" % x


def values(data, name, metric):
    return [s[metric] if s and metric in s else None for s in data.get(name, [])]


def median(v):
    v = [x for x in v if x is not None]
    return statistics.median(v) if v else None


def row(results, what, test, metric, ours, peer, sign, goal):
    peer, _, does = peer.partition("|")
    data = results[test]["samples"]
    a, b = values(data, ours, metric), values(data, peer, metric)
    if median(a) is None:
        return None
    cells = [what] + own(a, metric) + ["–", "–", "–", ""]
    ratio = None
    ratios = [x / y for x, y in zip(a, b) if x is not None and y]
    if ratios:
        ratio, (lo, hi) = statistics.median(ratios), meter.bootstrap(ratios)
        cells[4] = "%s %s (%s)" % (number(median(b)), unit(metric), (peer + " " + does).strip())
        cells[5] = "%.3f" % ratio + (" (%.3f–%.3f)" % (lo, hi) if len(ratios) > 1 else "")
    got = median(a) if sign == "<= own" else ratio
    if sign and got is not None:
        cells[6] = ("≥ " if sign == ">=" else "≤ ") + "%g" % goal + (" " + unit(metric) if sign == "<= own" else "×")
        cells[7] = "reached" if (got >= goal if sign == ">=" else got <= goal) else "missed"
    return cells


def own(v, metric):
    """Our median, our worst of a hundred, and of how many samples."""
    v = [x for x in v if x is not None]
    worst = number(meter.quantile(v, 0.01 if metric in ("MiB/s", "each_s") else 0.99))
    return ["%s %s" % (number(median(v)), unit(metric)), worst if len(v) > 1 else "–", str(len(v))]


def listing(results):
    """The rows of listing.py, whose goal is for the worst of a hundred."""
    for what, samples in results.get("list", {}).get("samples", {}).items():
        v = [s["ms"] for s in samples]
        worst = meter.quantile(v, 0.99)
        yield ["page of 100,000: " + what] + own(v, "ms") + ["–", "–", "p99 ≤ 10 ms", "reached" if worst <= 10 else "missed"]


def main():
    folder = sys.argv[1]
    results = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".json"):
            with open(os.path.join(folder, f)) as h:
                r = json.load(h)
            results[r["test"]] = r
    for name, taken in results.get("intact", {}).get("samples", {}).items():
        for what in sorted({k for s in taken if s for k, v in s.items() if v}):
            print("NOT INTACT: %s, %s\n" % (name, what.replace("_", " ")))
    noise = [n for r in results.values() for n in r["noise_ms"]]
    if not noise:
        sys.exit("report: nothing was measured in " + folder)
    print("noise probe %.1f ms, p10 %.1f, p90 %.1f; ratios are medians of the rounds, with their 95 %% interval\n" % (statistics.median(noise), meter.quantile(noise, 0.1), meter.quantile(noise, 0.9)))
    print("| what | sandgate | p99 | n | peer | ratio | goal | |\n|---|---:|---:|---:|---:|---:|---:|---|")
    rows = [row(results, *g) for g in GOALS if g[1] in results]
    for cells in filter(None, rows + list(listing(results))):
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
