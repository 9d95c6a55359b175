"""The tests of what a sandbox lives through. Each takes one sample at one
door, of sandboxes that are made for it and removed after it."""

import concurrent.futures
import functools
import os
import time

import door
import meter


def need(ok, what):
    if not ok:
        raise OSError(what)


def timed(do, *args):
    """What do returns, and the milliseconds it took."""
    began = time.perf_counter()
    got = do(*args)
    return got, (time.perf_counter() - began) * 1e3


def clean(test):
    @functools.wraps(test)
    def sample(t, o, **more):
        try:
            return test(t.door, o, **more)
        finally:
            t.door.clear()

    return sample


def hello(d, box):
    need(d.output(box, ["echo", "hi"]) == b"hi\n", "no hi")


@clean
def first(d, o):
    """From the wish for a sandbox to the first output of a command in it."""

    def both():
        hello(d, d.create())

    return {"ms": timed(both)[1]}


@clean
def pause(d, o, memory=0):
    """Down and up again, with a shell and a job in it, and memory MiB in use."""
    box = d.create()
    d.job(box, ["sh", "-c", "sleep infinity; exit 1"])
    fill = "$x = ''; open F, '</dev/urandom'; read F, $x, %d << 20; open G, '>/tmp/full'; close G; sleep 1000000" % memory
    d.job(box, ["perl", "-e", fill])
    d.output(box, ["sh", "-c", "until [ -e /tmp/full ]; do sleep 0.05; done"])
    keeps = d.keeps_memory()
    _, down = timed(d.pause, box)
    _, up = timed(d.resume, box)
    _, out = timed(hello, d, box)
    if keeps:
        need(d.jobs_running(box) == 2, "the jobs did not survive")
    return {"pause_ms": down, "resume_ms": up, "resume_output_ms": up + out}


# Looks at the clock all the time until /tmp/stop is there, then leaves the
# longest time that it did not get to do so, in milliseconds, in /tmp/held.
WATCH = """use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
my ($last, $held, $n) = (clock_gettime(CLOCK_MONOTONIC), 0, 0);
until ($n++ % 20 == 0 && -e '/tmp/stop') {
  sleep 0.001;
  my $now = clock_gettime(CLOCK_MONOTONIC);
  $held = $now - $last if $now - $last > $held;
  $last = $now;
}
open F, '>', '/tmp/held.new'; print F $held * 1000; close F; rename '/tmp/held.new', '/tmp/held';"""


def filled(d, megabytes):
    """A sandbox with so much in its files, in files of 1 MB, all of it on disk."""
    box = d.create()
    write = "mkdir -p /srv/full; cd /srv/full; for i in $(seq %d); do head -c 1000000 /dev/urandom >f$i; done"
    d.output(box, ["sh", "-c", write % megabytes])
    os.sync()
    return box


def same(d, box, megabytes):
    """The first command in a copy, which proves that it is one."""
    size = d.output(box, ["sh", "-c", "cat /srv/full/* | wc -c"])
    need(int(size) == megabytes * 1000000, "the copy has %r bytes" % size)


@clean
def snapshot(d, o, megabytes=10):
    box = filled(d, megabytes)
    d.job(box, ["perl", "-e", WATCH])
    image, took = timed(d.snapshot, box)
    held = d.output(box, ["sh", "-c", "touch /tmp/stop; until [ -e /tmp/held ]; do sleep 0.02; done; cat /tmp/held"])

    def use():
        other = d.create(image)
        hello(d, other)
        return other

    other, start = timed(use)
    same(d, other, megabytes)
    return {"snapshot_ms": took, "held_ms": float(held), "from_ms": start}


@clean
def fork(d, o):
    box = filled(d, 10)

    def use():
        other = d.fork(box)
        hello(d, other)
        return other

    other, took = timed(use)
    same(d, other, 10)
    return {"ms": took}


def many(d, n, parallel):
    """Makes n sandboxes, so many at once, and returns the seconds it took."""
    doors = [d.again() for _ in range(parallel)]

    def some(k):
        for _ in range(k, n, parallel):
            doors[k].create()

    began = time.perf_counter()
    try:
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            list(pool.map(some, range(parallel)))
    finally:
        d.boxes += [box for one in doors for box in one.boxes]
    return time.perf_counter() - began


@clean
def rate(d, o, parallel=2):
    n = o.batch
    return {"each_s": n / many(d, n, parallel)}


def available():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


@clean
def crowd(d, o):
    """Many idle sandboxes at once: what each costs this machine."""

    def used():
        return sum(pss for _, _, pss in meter.belonging(meter.processes(), d.marks(), d.names).values())

    free, before = available(), used()
    took = many(d, o.crowd, door.PARALLEL)
    time.sleep(3)
    left, after = available(), used()
    return {
        "PSS_MiB_each": (after - before) / 1024 / o.crowd,
        "available_MiB_each": (free - left) / 1024 / o.crowd,
        "all_s": took,
    }
