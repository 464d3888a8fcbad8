#!/usr/bin/env python3
"""Measures how much memory `umbel dedup` takes at most, against what `--memory` allows.

    cargo build --release -p umbel
    cargo run --release -p umbel --example gen_urls -- 4000000 0.25 1 > urls4m.txt
    benchmarks/dedup/memory.py urls4m.txt

Runs every exactness with different numbers of workers in one process, and as 2 processes on loopback, each
under the same `--memory`. The peak is the largest resident set of a process, from the system's own
account of the ended process (`wait4`). A job that the program refuses for want of memory is run again
with the size that the refusal asks for. Prints a Markdown table; exits with 1 if a peak is above its
`--memory`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "UMBEL_JOB_TOKEN": "benchmark-of-many-processes-12345"}
EXACTNESS = ("approximate", "fingerprint", "bytes")


def run_all(commands, folder):
    """Runs these side by side: peak of each in MiB, and what a failed one said."""
    logs = [open(folder / f"{number}.log", "w+") for number in range(len(commands))]
    children = [subprocess.Popen(command, stderr=log, stdout=log, env=ENVIRONMENT)
                for command, log in zip(commands, logs)]
    peaks, said = [], ""
    for child, log in zip(children, logs):
        _, status, usage = os.wait4(child.pid, 0)
        peaks.append(usage.ru_maxrss / 1024)
        if status != 0:
            log.seek(0)
            said += log.read()
    return max(peaks), said


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("input", type=pathlib.Path)
    arguments.add_argument("--umbel", type=pathlib.Path, default=ROOT / "target/release/umbel")
    arguments.add_argument("--memory", default="64M", help="in M")
    arguments.add_argument("--workers", type=int, nargs="*", default=[1, 64, 512, 1024])
    arguments.add_argument("--port", type=int, default=28_400)
    options = arguments.parse_args()
    failures = 0
    print("| mode | workers | exactness | --memory | peak MiB | held |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def common(exactness, memory):
            return [options.umbel, "dedup", options.input, "--exactness", exactness, "--memory",
                    memory, "--quiet", "--overwrite", "--seed", "7"]

        def one_process(workers, exactness, memory):
            return [common(exactness, memory) + ["--workers", str(workers), "-o", "/dev/null"]]

        def processes(workers, exactness, memory):
            peers = ",".join(f"127.0.0.1:{options.port + rank}" for rank in range(workers))
            return [common(exactness, memory) +
                    ["-o", folder / f"out{rank}", "--rank", str(rank), "--peers", peers, "--job-dir",
                     folder / f"job{rank}"] for rank in range(workers)]

        cases = [("one process", count, one_process) for count in options.workers]
        cases.append(("one process each", 2, processes))
        for mode, workers, commands in cases:
            for exactness in EXACTNESS:
                memory = options.memory
                peak, said = run_all(commands(workers, exactness, memory), folder)
                asked = re.search(r"at least (\d+M)", said)
                if asked:
                    memory = asked.group(1)
                    peak, said = run_all(commands(workers, exactness, memory), folder)
                is_held = not said and peak <= int(memory.removesuffix("M"))
                failures += not is_held
                print(f"| {mode} | {workers} | {exactness} | {memory} | {peak:.1f} "
                      f"| {'yes' if is_held else 'NO'} |", flush=True)
                if said:
                    print(said, file=sys.stderr)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
