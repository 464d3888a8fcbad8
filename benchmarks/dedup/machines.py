#!/usr/bin/env python3
"""Checks that `umbel dedup` over many processes writes what one process writes, also when some are killed.

    cargo build --release -p umbel
    cargo run --release -p umbel --example gen_urls -- 20000000 0.25 1 > urls20m.txt
    benchmarks/dedup/machines.py urls20m.txt --bytes 150000000 --kills 20

The input is cut into one file a worker. For every keep rule and exactness, with 4 and 8 processes on
loopback, the outputs must be those of one process over all files, byte for byte. Then, in rounds until
so many were killed, 4 processes work while up to two of them, drawn anew each time, are killed
(SIGKILL) at drawn moments and started again: the outputs must be the same. Prints a Markdown table and a line a round; exits
with 1 if anything differs.
"""

import argparse
import filecmp
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
UMBEL = ROOT / "target/release/umbel"
ENVIRONMENT = {**os.environ, "UMBEL_JOB_TOKEN": "benchmark-of-many-processes-12345"}
KILLS_A_ROUND = 2


class Site:
    """Input files of so many workers, and a folder for everything that comes of them."""

    def __init__(self, folder, source, workers, part_bytes):
        self.folder = folder
        self.parts = [folder / f"{worker}.txt" for worker in range(workers)]
        with open(source, "rb") as stream:
            for part in self.parts:
                part.write_bytes(stream.read(part_bytes) + stream.readline())

    def expect(self, options):
        """What one process keeps of each file."""
        target = self.folder / "expected"
        command = [UMBEL, "dedup", *self.parts, "--output", f"{target}/", "--quiet", "--overwrite"]
        subprocess.run([*command, *options], check=True)
        return target

    def start(self, worker, run, port, options):
        """One worker as a process."""
        peers = ",".join(f"127.0.0.1:{port + other}" for other in range(len(self.parts)))
        folder = self.folder / f"{run}-{worker}"
        command = [UMBEL, "dedup", self.parts[worker], "--rank", str(worker), "--peers", peers]
        command += ["--output", f"{folder}/", "--job-dir", f"{folder}.job", "--memory", "128M"]
        command += ["--summary", self.folder / f"{run}.json", "--quiet", "--overwrite"]
        return subprocess.Popen([*command, *options], env=ENVIRONMENT)

    def is_as(self, expected, run):
        """Whether all workers of a run wrote that."""
        def same(worker, part):
            output = self.folder / f"{run}-{worker}" / part.name
            return output.exists() and filecmp.cmp(expected / part.name, output, shallow=False)
        return all(same(worker, part) for worker, part in enumerate(self.parts))


def compare_rules(site, port):
    """A row for every keep rule and exactness; how many of them differ."""
    failures = 0
    for keep in ("first", "last"):
        for exactness in ("approximate", "fingerprint", "bytes"):
            options = ["--keep", keep, "--exactness", exactness, "--seed", "77"]
            expected = site.expect(options)
            run = f"{keep}-{exactness}"
            workers = [site.start(w, run, port, options) for w in range(len(site.parts))]
            is_same = not any([worker.wait() for worker in workers]) and site.is_as(expected, run)
            summary = json.loads((site.folder / f"{run}.json").read_text())
            a_record = summary["exchange"]["network_bytes"] / summary["items"]
            print(f"| {len(workers)} | {keep} | {exactness} | {summary['plan']['mode']} | {a_record:.2f} "
                  f"| {summary['run']['wall_s']:.2f} | {'yes' if is_same else 'NO'} |", flush=True)
            failures += not is_same
            port += len(workers)
    return failures


def kill_some(site, port, wanted):
    """Rounds until so many workers were killed; how many of them went wrong."""
    count = len(site.parts)
    expected = site.expect([])
    draws = random.Random(1)
    began = time.monotonic()
    for worker in [site.start(w, "undisturbed", port, []) for w in range(count)]:
        worker.wait()
    usual_s = time.monotonic() - began
    print(f"\nundisturbed: {usual_s:.2f} s")
    failures = number = killed = 0
    while killed < wanted:
        port += count
        workers = [site.start(w, number, port, []) for w in range(count)]
        began, kills = time.monotonic(), 0
        for _ in range(KILLS_A_ROUND):
            # A moment of the run, not a wait for something.
            time.sleep(draws.uniform(0, usual_s / KILLS_A_ROUND))
            victim = draws.randrange(count)
            if workers[victim].poll() is None:
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = site.start(victim, number, port, [])
                kills += 1
        is_same = not any([worker.wait() for worker in workers]) and site.is_as(expected, number)
        print(f"round {number}: {kills} killed, {time.monotonic() - began:.2f} s, "
              f"{'the same' if is_same else 'OTHER OUTPUT'}", flush=True)
        failures += not is_same
        killed, number = killed + kills, number + 1
    print(f"{killed} killed in {number} rounds")
    return failures


def main():
    """Runs both parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, default=20_000_000, help="of each worker's file")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--port", type=int, default=23_000, help="the first of some hundred")
    arguments = parser.parse_args()
    failures, port = 0, arguments.port
    print("| processes | keep | exactness | mode | B a record | s | same |\n|--:|---|---|---|--:|--:|---|")
    for count in (4, 8):
        with tempfile.TemporaryDirectory(prefix="umbel-machines-") as folder:
            site = Site(pathlib.Path(folder), arguments.input, count, arguments.bytes)
            failures += compare_rules(site, port)
        port += 10 * count
    with tempfile.TemporaryDirectory(prefix="umbel-machines-") as folder:
        site = Site(pathlib.Path(folder), arguments.input, 4, arguments.bytes)
        failures += kill_some(site, port, arguments.kills)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
