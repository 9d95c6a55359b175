#!/usr/bin/env python3
"""report.py FOLDER: one table of what measure.py wrote there, beside the goals."""

import json
import os
import statistics
import sys

import meter

# (what is measured, test, metric, ours, peer, sign, goal). The goal bounds the
# ratio to the peer; with "<= MiB" it bounds our own number.
GOALS = [
    ("create → first output", "start", "ms", "sandgate", "docker run + exec", "<=", 0.35),
    ("one-shot run", "start", "ms", "sandgate run", "docker run --rm", "", 0),
    ("exec through the API", "api", "ms", "sandgate", "docker", "<=", 0.15),
    ("ssh … true, new connection", "new", "ms", "sandgate", "forcecommand", "<=", 0.1),
    ("  the peer on curve25519", "new", "ms", "sandgate", "forcecommand-curve", "<=", 0.1),
    ("ssh … true, ControlMaster", "mux", "ms", "sandgate", "forcecommand", "<=", 0.12),
    ("  sshd in the container", "mux", "ms", "sandgate", "sshd-inside", "<=", 1.1),
    ("download", "down", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("  through docker exec", "down", "MiB/s", "sandgate", "forcecommand", ">=", 2),
    ("upload", "up", "MiB/s", "sandgate", "sshd-inside", ">=", 1),
    ("  through docker exec", "up", "MiB/s", "sandgate", "forcecommand", ">=", 2),
    ("keystroke echo, p50", "echo", "p50_ms", "sandgate", "sshd-inside", "<=", 1.5),
    ("keystroke echo, p99", "echo", "p99_ms", "sandgate", "sshd-inside", "<=", 1.5),
    ("idle session, server memory", "fan", "server_MiB_each", "sandgate", "forcecommand", "<=", 0.03),
    ("idle session, all memory", "fan", "PSS_MiB_each", "sandgate", "forcecommand", "", 0),
    ("idle sandbox, all memory", "idle", "PSS_MiB_each", "sandgate", "docker", "<= MiB", 20),
]
UNIT = {"ms": "ms", "MiB/s": "MiB/s", "p50_ms": "ms", "p99_ms": "ms", "server_MiB_each": "MiB", "PSS_MiB_each": "MiB"}


def values(data, name, metric):
    return [s[metric] if s and metric in s else None for s in data.get(name, [])]


def median(v):
    v = [x for x in v if x is not None]
    return statistics.median(v) if v else None


def row(results, what, test, metric, ours, peer, sign, goal):
    data = results[test]["samples"]
    a, b = values(data, ours, metric), values(data, peer, metric)
    if median(a) is None:
        return None
    cells = [what, "%.3g %s" % (median(a), UNIT[metric]), "–", "–", "–", ""]
    ratio = None
    if median(b) is not None:
        ratios = [x / y for x, y in zip(a, b) if x is not None and y]
        ratio, (lo, hi) = statistics.median(ratios), meter.bootstrap(ratios)
        cells[2] = "%.3g %s (%s)" % (median(b), UNIT[metric], peer)
        cells[3] = "%.3f (%.3f–%.3f)" % (ratio, lo, hi)
    got = median(a) if sign == "<= MiB" else ratio
    if sign and got is not None:
        cells[4] = ("≥ " if sign == ">=" else "≤ ") + "%g" % goal + (" MiB" if sign == "<= MiB" else "×")
        cells[5] = "reached" if (got >= goal if sign == ">=" else got <= goal) else "missed"
    return cells


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
    print("| what | sandgate | peer | ratio | goal | |\n|---|---:|---:|---:|---:|---|")
    for g in GOALS:
        cells = row(results, *g) if g[1] in results else None
        if cells:
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
