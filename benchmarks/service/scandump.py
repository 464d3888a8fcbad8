#!/usr/bin/env python3
"""Measures how much memory a node takes while a client copies a large filter by `BF.SCANDUMP` and another one inserts.

    cargo build --release -p umbel
    benchmarks/service/scandump.py                # a filter of 256 MiB, the largest that a shard takes
    benchmarks/service/scandump.py --mib 64       # tries the benchmark itself

Starts `umbel serve --dev --no-fsync`, creates a filter of RedisBloom's kind, and inserts so many items that each page
of it is in memory: pages that were touched first by the inserts beside the dump would count as memory of the
dump. Idle is the resident memory once it stands still. From then on the kernel's own peak (`VmHWM`, reset through
`clear_refs`) tells the most: first while a client inserts alone, then while the filter is dumped, too. The pieces
are kept in a file, not in memory, and are loaded under another name afterwards: all items that were acknowledged
before the dump began must be in that copy.

Prints a Markdown table; exits with 1 if the peak of the dump is more than `--allowed-mib` above idle, or the copy lacks
an item.
"""

import argparse
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

from resp import Connection, Refusal, free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATE = 0.01
MIB = 1 << 20
FILTER, COPY = "filled", "copy"

# Items of a command: large while filling and checking, small while memory is measured.
MANY_ITEMS, FEW_ITEMS = 10_000, 100

# Memory stands still if it changes by less than this over that long.
STILL_BYTES, STILL_SECONDS = MIB, 5.0
STILL_SECONDS_MAX = 300.0

START_SECONDS_MAX = 60.0
READY = "speaking the Redis protocol on "
# A node takes its time to end the import of a large copy.
ANSWER_SECONDS_MAX = 600.0


class Node:
    """A node in a folder of its own."""

    def __init__(self, umbel, folder):
        listen, resp = free_ports(2)
        self.address = ("127.0.0.1", resp)
        self.log = folder / "node.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UMBEL_")}
        command = [umbel, "serve", "--dev", "--no-fsync", "--data", folder / "data",
                   "--listen", f"127.0.0.1:{listen}", "--resp", f"127.0.0.1:{resp}"]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def wait(self):
        """Waits until the node says that it can be asked."""
        end = time.monotonic() + START_SECONDS_MAX
        while READY not in (said := self.log.read_text(errors="replace")):
            if self.child.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the node does not start:\n{said}")
            time.sleep(0.05)

    def memory_bytes(self, name):
        for line in pathlib.Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"/proc/{self.child.pid}/status has no {name}")

    def idle_bytes(self):
        """Its memory, once that stands still."""
        end = time.monotonic() + STILL_SECONDS_MAX
        before = self.memory_bytes("VmRSS")
        while True:
            time.sleep(STILL_SECONDS)
            now = self.memory_bytes("VmRSS")
            if abs(now - before) < STILL_BYTES:
                return now
            if time.monotonic() > end:
                raise SystemExit(f"the node's memory still changes after {STILL_SECONDS_MAX:.0f} s without a request")
            before = now

    def reset_peak(self):
        # 5 resets the peak alone: see proc(5).
        pathlib.Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")

    def peak_bytes(self):
        return self.memory_bytes("VmHWM")

    def end(self):
        self.child.kill()
        self.child.wait()


class Inserter(threading.Thread):
    """Inserts new items over a connection of its own until it is told to stop. A thread is enough: it waits for
    answers most of the time."""

    def __init__(self, node, first):
        super().__init__(daemon=True)
        self.connection = Connection(node.address, ANSWER_SECONDS_MAX)
        self.next = first
        self.is_stopping = threading.Event()
        self.is_done = False

    def run(self):
        while not self.is_stopping.is_set():
            insert(self.connection, range(self.next, self.next + FEW_ITEMS))
            self.next += FEW_ITEMS
        self.connection.close()
        self.is_done = True

    def stop(self):
        """The first item that was not inserted."""
        self.is_stopping.set()
        self.join()
        if not self.is_done:
            raise SystemExit("the inserts beside it failed")
        return self.next


def insert(connection, items):
    if len(connection.ask("BF.MADD", FILTER, *items)) != len(items):
        raise SystemExit("an insert was not answered for each of its items")


def missing_count(connection, item_count):
    """How many of the items the copy lacks."""
    missing = 0
    for first in range(0, item_count, MANY_ITEMS):
        items = range(first, min(first + MANY_ITEMS, item_count))
        missing += connection.ask("BF.MEXISTS", COPY, *items).count(0)
    return missing


def dump(connection, file):
    """Writes all pieces into a file, with their iterators and lengths, and counts their bytes."""
    iterator, byte_count = 0, 0
    while True:
        iterator, piece = connection.ask("BF.SCANDUMP", FILTER, iterator)
        if iterator == 0:
            return byte_count
        file.write(struct.pack("<qI", iterator, len(piece)))
        file.write(piece)
        byte_count += len(piece)


def load(connection, file):
    file.seek(0)
    while head := file.read(12):
        iterator, length = struct.unpack("<qI", head)
        connection.ask("BF.LOADCHUNK", COPY, iterator, file.read(length))


def measure(args, node, pieces):
    node.wait()
    connection = Connection(node.address, ANSWER_SECONDS_MAX)
    # The first link of a chain gets half of the rate: ln(2 / rate) / ln(2)² bits an item.
    capacity = int(args.mib * MIB * 8 * math.log(2) ** 2 / math.log(2 / RATE))
    connection.ask("UMBEL.CREATE", FILTER, "KIND", "redisbloom", "CAPACITY", capacity, "ERROR", RATE)
    size_bytes = connection.ask("BF.INFO", FILTER, "SIZE")[0]
    for first in range(0, args.items, MANY_ITEMS):
        insert(connection, range(first, min(first + MANY_ITEMS, args.items)))

    idle_alone = node.idle_bytes()
    node.reset_peak()
    inserter = Inserter(node, args.items)
    inserter.start()
    time.sleep(args.alone_seconds)
    present_count = inserter.stop()
    alone_peak = node.peak_bytes()

    idle = node.idle_bytes()
    card = connection.ask("BF.CARD", FILTER)
    inserter = Inserter(node, present_count)
    node.reset_peak()
    inserter.start()
    began = time.monotonic()
    dump_bytes = dump(connection, pieces)
    seconds = time.monotonic() - began
    beside_count = inserter.stop() - present_count
    peak = node.peak_bytes()

    load(connection, pieces)
    missing = missing_count(connection, present_count)
    copy_card = connection.ask("BF.CARD", COPY)
    connection.close()
    above = (peak - idle) / MIB
    rows = [
        ("filter, MiB", f"{size_bytes / MIB:,.0f}"),
        ("idle, MiB", f"{idle / MIB:,.1f}"),
        (f"most while a client inserts for {args.alone_seconds:g} s, MiB above idle",
         f"{(alone_peak - idle_alone) / MIB:,.1f}"),
        ("most while it is dumped and a client inserts, MiB above idle", f"{above:,.1f}"),
        ("allowed, MiB", f"{args.allowed_mib:g}"),
        ("dump, MiB", f"{dump_bytes / MIB:,.0f}"),
        ("dump, s", f"{seconds:,.1f}"),
        ("items inserted beside it", f"{beside_count:,}"),
        ("items acknowledged before it", f"{present_count:,}"),
        ("of these missing in the loaded copy", f"{missing:,}"),
        ("count of the filter before it, and of the copy", f"{card:,}, {copy_card:,}"),
    ]
    print("| what | |\n|---|--:|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")
    return above <= args.allowed_mib and missing == 0 and copy_card >= card


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--umbel", type=pathlib.Path, default=ROOT / "target/release/umbel",
                        help="the server [default: what `cargo build --release` makes]")
    parser.add_argument("--mib", type=int, default=256, help="size of the filter, MiB, at most 256 [default: 256]")
    parser.add_argument("--items", type=int, default=1_000_000,
                        help="items that are inserted first, which touch every page of 1 GiB [default: 1000000]")
    parser.add_argument("--alone-seconds", type=float, default=10.0,
                        help="how long a client inserts alone [default: 10]")
    parser.add_argument("--allowed-mib", type=float, default=64.0,
                        help="memory above idle at which the benchmark fails [default: 64]")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target/bench",
                        help="folder for the node's data and the pieces, which are removed [default: target/bench]")
    args = parser.parse_args()
    if not args.umbel.is_file():
        parser.error(f"{args.umbel} is not there: cargo build --release -p umbel, or give --umbel")
    if args.mib < 1 or args.items < 1 or args.alone_seconds <= 0:
        parser.error("--mib, --items and --alone-seconds must be positive")
    args.data.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="scandump-", dir=args.data))
    node = Node(args.umbel.resolve(), folder)
    try:
        with open(folder / "pieces", "w+b") as pieces:
            is_good = measure(args, node, pieces)
    except (Refusal, OSError) as error:
        raise SystemExit(f"it ended: {error}") from error
    finally:
        node.end()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
