#!/usr/bin/env python3
"""Bytes and seconds to make one file or directory equal to another: umbel reconcile beside rsync.

    cargo build --release
    benchmarks/reconcile/files.py lines OLD NEW       # text files; umbel makes them equal but for the order of lines
    benchmarks/reconcile/files.py dir OLD NEW         # directories

Nothing that is named is changed: a copy of OLD is brought up to NEW, by each program in turn, in a new temporary
directory, both ends on this machine. Bytes are both ways, as each program counts them: umbel in its report, rsync in
--stats. Prints a Markdown table, and fails if a copy is not equal afterwards.
"""

import argparse
import collections
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

UMBEL = pathlib.Path("target/release/umbel")


def timed(command):
    """Seconds and standard output of a command that must end with code 0 or 1."""
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return time.monotonic() - began, done.stdout


def run_umbel(form, copy, new, scratch, *more):
    report = scratch / "report.json"
    command = [UMBEL, "reconcile", f"--{form}", copy, new, "--pull", "--delete", "--report", report, *more]
    seconds, _ = timed(command)
    found = json.loads(report.read_text())
    difference = found["difference"]
    about = f"{difference['only_a']:,} out, {difference['only_b']:,} in"
    return found["bytes_sent"] + found["bytes_received"], seconds, about


def run_rsync(form, copy, new, *more):
    slash = "/" if form == "dir" else ""
    options = ["--stats", "--no-whole-file", "--ignore-times", "--delete", *more]
    if form != "dir":
        options.remove("--delete")
    seconds, text = timed(["rsync", "-rlp", *options, f"{new}{slash}", f"{copy}{slash}"])
    sent = re.search(r"Total bytes sent: ([\d,]+)", text)
    received = re.search(r"Total bytes received: ([\d,]+)", text)
    return sum(int(found[1].replace(",", "")) for found in (sent, received)), seconds, ""


def lines_of(path):
    with open(path, "rb") as file:
        return collections.Counter(line.rstrip(b"\n") for line in file)


def is_equal(form, copy, new, keeps_order):
    if form == "lines":
        return filecmp.cmp(copy, new, shallow=False) if keeps_order else lines_of(copy) == lines_of(new)
    compared = subprocess.run(["diff", "-r", "--no-dereference", copy, new], capture_output=True, check=False)
    return compared.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=["lines", "dir"])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    arguments = parser.parse_args()
    form, new = arguments.form, arguments.new
    programs = [
        ("umbel reconcile", False, lambda copy, scratch: run_umbel(form, copy, new, scratch)),
        ("umbel reconcile --optimize time", False,
         lambda copy, scratch: run_umbel(form, copy, new, scratch, "--optimize", "time")),
        ("rsync", True, lambda copy, _: run_rsync(form, copy, new)),
        ("rsync -z", True, lambda copy, _: run_rsync(form, copy, new, "-z")),
        ("rsync -z --zc=zstd --zl=12", True, lambda copy, _: run_rsync(form, copy, new, "-z", "--zc=zstd", "--zl=12")),
    ]
    rows = []
    with tempfile.TemporaryDirectory() as root:
        for name, keeps_order, run in programs:
            scratch = pathlib.Path(root)
            copy = scratch / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.unlink(missing_ok=True)
            if form == "dir":
                shutil.copytree(arguments.old, copy, symlinks=True)
            else:
                shutil.copyfile(arguments.old, copy)
            byte_count, seconds, about = run(copy, scratch)
            if not is_equal(form, copy, new, keeps_order):
                sys.exit(f"{name}: the copy is not equal")
            rows.append((name, byte_count, seconds, about))
    first = rows[0][1]
    print("| program | bytes, both ways | beside umbel | seconds | difference |\n|---|--:|--:|--:|---|")
    for name, byte_count, seconds, about in rows:
        print(f"| {name} | {byte_count:,} | {byte_count / first:.2f} | {seconds:.2f} | {about} |")


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    main()
