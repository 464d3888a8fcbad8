#!/usr/bin/env python3
"""Checks that `umbel dedup` is exact on real inputs, for many worker counts and input forms.

    cargo build --release -p umbel
    benchmarks/dedup/real_inputs.sh /tmp/real
    benchmarks/dedup/exactness.py /tmp/real/*.txt > exactness.md

For each input and each number of workers P the output must be, byte for byte, that of
`awk '!seen[$0]++'`: each distinct line once, where it came first. The same must come out when the
input is cut in three files, and when these are compressed with gzip or zstd. As a second opinion
the output, sorted, must be that of `LC_ALL=C sort -u`, and the counts in the summary must be those
of the reference. Prints a Markdown table; exits with 1 if anything differs.

Needs awk (mawk or gawk), sort, gzip and zstd; scratch space of about four times the largest input;
and as much memory as awk takes for all distinct lines.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_BYTES = 1 << 20
PART_COUNT = 3
C_LOCALE = {**os.environ, "LC_ALL": "C"}


def count_lines(path):
    """Number of newlines in a file."""
    line_count = 0
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            line_count += block.count(b"\n")
    return line_count


def ends_with_newline(path):
    """Whether the last byte is a newline; awk and sort would add one."""
    with open(path, "rb") as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return True
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def first_difference(path, other_path):
    """Offset of the first byte in which two files differ, or None."""
    offset = 0
    with open(path, "rb") as stream, open(other_path, "rb") as other:
        while True:
            block, other_block = stream.read(BLOCK_BYTES), other.read(BLOCK_BYTES)
            if block != other_block:
                shorter = min(len(block), len(other_block))
                same = (i for i in range(shorter) if block[i] != other_block[i])
                return offset + next(same, shorter)
            if not block:
                return None
            offset += len(block)


def run(argv, output_path, **options):
    """Runs a command with its output in a file; stops the script if it fails."""
    with open(output_path, "wb") as stdout:
        subprocess.run(argv, stdout=stdout, check=True, **options)


def cut(source, scratch):
    """Cuts a file into parts of about equal bytes at line ends."""
    part_bytes = os.path.getsize(source) // PART_COUNT
    paths = []
    with open(source, "rb") as stream:
        for number in range(PART_COUNT):
            path = scratch / f"part-{number}.txt"
            left_bytes = part_bytes if number < PART_COUNT - 1 else sys.maxsize
            with open(path, "wb") as part:
                while left_bytes > 0 and (block := stream.read(min(left_bytes, BLOCK_BYTES))):
                    part.write(block)
                    left_bytes -= len(block)
                if number < PART_COUNT - 1:
                    part.write(stream.readline())
            paths.append(path)
    return paths


def compress(paths, program, extension):
    """Compresses each file beside itself."""
    results = [path.with_name(path.name + extension) for path in paths]
    for path, result in zip(paths, results):
        run([program, "-q", "-1", "-c", path], result)
    return results


class Umbel:
    """Runs of the command under test on one input, against one reference."""

    def __init__(self, program, arguments, scratch, reference, record_count, distinct_count):
        self.program = program
        self.arguments = arguments
        self.output = scratch / "umbel.txt"
        self.summary = scratch / "summary.json"
        self.reference = reference
        self.expected = {"records": record_count, "distinct": distinct_count}

    def check(self, workers, files):
        """One run; "ok", or what is wrong with its output."""
        argv = [self.program, "dedup", "--quiet", "--workers", str(workers)]
        argv += ["--summary", self.summary, *self.arguments, *files]
        self.summary.unlink(missing_ok=True)
        start = time.monotonic()
        with open(self.output, "wb") as stdout:
            done = subprocess.run(argv, stdout=stdout, stderr=subprocess.PIPE, check=False)
        wall_s = time.monotonic() - start
        verdict = self.verdict(done)
        names = ", ".join(os.path.basename(file) for file in files)
        print(f"P = {workers}, {names}: {verdict} ({wall_s:.1f} s)", file=sys.stderr, flush=True)
        return verdict

    def verdict(self, done):
        """What a finished run is worth."""
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            return f"**failed ({done.returncode}): {lines[-1] if lines else 'no message'}**"
        offset = first_difference(self.output, self.reference)
        if offset is not None:
            return f"**differs at byte {offset:,}**"
        with open(self.summary, encoding="utf-8") as stream:
            summary = json.load(stream)
        for field, expected in self.expected.items():
            if summary.get(field) != expected:
                return f"**summary says {field} = {summary.get(field)}**"
        return "ok"

    def check_set(self, source, scratch):
        """The last output as a set, against `sort -u`."""
        sorted_input, sorted_output = scratch / "sorted-input.txt", scratch / "sorted-output.txt"
        run(["sort", "-u", "-T", scratch, source], sorted_input, env=C_LOCALE)
        run(["sort", "-T", scratch, self.output], sorted_output, env=C_LOCALE)
        offset = first_difference(sorted_input, sorted_output)
        sorted_input.unlink()
        sorted_output.unlink()
        return "ok" if offset is None else f"**differs at byte {offset:,}**"


def check_input(source, options, scratch):
    """All checks of one input: the cells of its row."""
    if not ends_with_newline(source):
        sys.exit(f"exactness.py: {source} lacks the newline at its end, which awk would add")
    reference = scratch / "reference.txt"
    run([options.awk, "!seen[$0]++", source], reference, env=C_LOCALE)
    record_count, distinct_count = count_lines(source), count_lines(reference)
    arguments = options.umbel_arguments.split()
    umbel = Umbel(options.umbel, arguments, scratch, reference, record_count, distinct_count)
    share = 1 - distinct_count / max(1, record_count)
    cells = [os.path.basename(source), f"{record_count:,}", f"{distinct_count:,}", f"{share:.1%}"]

    cells += [umbel.check(workers, [source]) for workers in options.workers]
    cells.append(umbel.check_set(source, scratch))
    parts = cut(source, scratch)
    cells.append(umbel.check(PART_COUNT, parts))
    for program, extension in (("gzip", ".gz"), ("zstd", ".zst")):
        compressed = compress(parts, program, extension)
        cells.append(umbel.check(PART_COUNT, compressed))
        for path in compressed:
            path.unlink()
    return cells


def parse_arguments():
    """The command line."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="plain text that ends with a newline")
    parser.add_argument("--workers", default="1,2,3,8,64", help="default 1,2,3,8,64")
    parser.add_argument("--umbel", default=str(target / "release/umbel"))
    parser.add_argument("--umbel-arguments", default="", help="more of them, for every run")
    parser.add_argument("--awk", default="mawk" if shutil.which("mawk") else "awk")
    parser.add_argument("--scratch", help="parent of the scratch folder (default: the system's)")
    options = parser.parse_args()
    options.workers = [int(workers) for workers in options.workers.split(",")]
    options.umbel = os.path.abspath(options.umbel)
    if not os.access(options.umbel, os.X_OK):
        parser.error(f"{options.umbel} is not there: cargo build --release -p umbel")
    return options


def main():
    """Checks every input and prints the table; 1 if a cell is not ok."""
    options = parse_arguments()
    print(
        f"Reference: `{options.awk} '!seen[$0]++'`; set: `LC_ALL=C sort -u`;"
        f" the {PART_COUNT} files run with P = {PART_COUNT}.\n"
    )
    heads = ["input", "records", "distinct", "duplicates"]
    heads += [f"P = {workers}" for workers in options.workers]
    heads += ["set", f"{PART_COUNT} files", f"{PART_COUNT} .gz", f"{PART_COUNT} .zst"]
    print("| " + " | ".join(heads) + " |")
    print("|---|--:|--:|--:|" + "---|" * (len(heads) - 4), flush=True)
    is_exact = True
    for file in options.files:
        with tempfile.TemporaryDirectory(prefix="umbel-exact-", dir=options.scratch) as scratch:
            cells = check_input(os.path.abspath(file), options, pathlib.Path(scratch))
        print("| " + " | ".join(cells) + " |", flush=True)
        is_exact = is_exact and all(cell == "ok" for cell in cells[4:])
    if not is_exact:
        sys.exit("exactness.py: not exact, see the table")


if __name__ == "__main__":
    main()
