#!/usr/bin/env python3
"""Times `umbel dedup` beside the tools that people use instead, on one file of lines.

    cargo build --release -p umbel && cargo build --release -p umbel --example hash_floor
    cargo run --release -p umbel --example gen_urls -- 20000000 0.25 1 > urls20m.txt
    benchmarks/dedup/peers.py urls20m.txt --rounds 3 > table.md

Every round runs each tool once, in an order that rotates from round to round, so that a slow
minute of the machine hits all of them. A row shows medians over the rounds: wall time, user plus
system CPU time of the process and its children, and the highest resident set among them (wait4).
Output goes to /dev/null, or with --to-file to a file in the scratch folder. One more round, not
timed, comes first: it warms the page cache and counts the lines that each tool writes. The right
number is given with --distinct, or else it is what `sort -u` writes.

Tools that are not installed are listed so and left out. Python needs nothing beyond its standard
library; DuckDB, Polars and DataFusion run in an interpreter that has them (--python). Progress goes to the
error stream, the report in Markdown to the output stream.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_BYTES = 1 << 20

# Starts the tool and waits for it. A process's peak includes that of the process which started it,
# up to its exec; so this small one does it, not the larger one that reads files and counts lines.
RUNNER = r"""
import os, sys, time
start = time.monotonic()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
wall_s = time.monotonic() - start
with open(sys.argv[1], "w") as report:
    print(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, status, file=report)
"""

# No quoting and a separator that text does not hold, so that a line is one field.
DUCKDB = r"""
import sys
import duckdb
source, target, memory, threads = sys.argv[1:5]
quoted = "'" + source.replace("'", "''") + "'"
connection = duckdb.connect()
connection.execute(f"SET threads = {threads}")
connection.execute("SET enable_progress_bar = false")  # it would go to the output stream
connection.execute("SET preserve_insertion_order = false")
if memory:
    connection.execute(f"SET memory_limit = '{memory}'")
connection.execute(
    f"COPY (SELECT DISTINCT line FROM read_csv({quoted}, columns = {{'line': 'VARCHAR'}},"
    " header = false, auto_detect = false, delim = '\x01', quote = '', escape = '',"
    f" strict_mode = false)) TO '{target}' (FORMAT csv, HEADER false, DELIMITER '\x01',"
    " QUOTE '', ESCAPE '')"
)
"""

POLARS = r"""
import sys
import polars
source, target, order = sys.argv[1:4]
lines = polars.scan_lines(source, name="line")
lines.unique(maintain_order=order == "ordered").sink_csv(
    target, include_header=False, quote_style="never", separator="\x01", engine="streaming"
)
"""

# Batches are written as they come, for its own CSV writer takes no pipe; a line is one field, as
# above. With a limit of memory the aggregate may go to disk.
DATAFUSION = r"""
import os
import sys
import datafusion
import pyarrow
from pyarrow import compute
source, memory, threads = sys.argv[1:4]
config = datafusion.SessionConfig().with_target_partitions(int(threads))
runtime = datafusion.RuntimeEnvBuilder()
if memory:
    runtime = runtime.with_disk_manager_os().with_fair_spill_pool(int(memory))
context = datafusion.SessionContext(config, runtime)
schema = pyarrow.schema([("line", pyarrow.string_view())])
options = datafusion.CsvReadOptions(
    has_header=False, delimiter="\x01", quote="\x02", schema=schema,
    file_extension=os.path.splitext(source)[1],
)
context.register_csv("lines", source, options=options)
for batch in context.sql("SELECT DISTINCT line FROM lines").execute_stream():
    lines = batch.to_pyarrow().column(0).cast(pyarrow.string()).fill_null("")
    joined = compute.binary_join(pyarrow.ListArray.from_arrays([0, len(lines)], lines), "\n")
    sys.stdout.buffer.write(joined[0].as_buffer())
    sys.stdout.buffer.write(b"\n")
"""


@dataclasses.dataclass
class Tool:
    """One row: how to run it on the input and what its result is worth."""

    name: str
    argv: list[str] | None  # None: not installed
    exact: str
    order: str
    version: str = ""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    stdin: bool = False  # the input comes on standard input
    piped: bool = False  # refuses /dev/null as its output, so that a pipe has to be emptied
    distinct: bool = True  # writes the distinct lines; False: the floor, which writes none
    summary: bool = False  # takes --summary FILE


@dataclasses.dataclass
class Run:
    """What one run cost, and the error that ended it, if any."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    line_count: int | None = None
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    error: str = ""


def first_line(argv):
    """The first line that a command prints, or "" when it cannot run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0].strip() if done.returncode == 0 and text else ""


def program(name, *version_arguments):
    """Path and version of a program, or (None, "") when it is not there."""
    path = shutil.which(name)
    return (path, first_line([path, *version_arguments])) if path else (None, "")


def tools(options, source, scratch):
    """Every tool of the comparison, umbel first."""
    rows = []
    threads = str(options.threads)

    umbel = options.umbel if os.access(options.umbel, os.X_OK) else None
    for memory in ("", "512M", "128M"):
        argv = [umbel, "dedup", source, "--quiet"]
        argv += ["--memory", memory] if memory else []
        rows.append(
            Tool(
                f"umbel dedup --memory {memory}" if memory else "umbel dedup",
                argv if umbel else None,
                "yes",
                "yes",
                version=first_line([umbel, "--version"]) if umbel else "",
                summary=True,
            )
        )

    floor = options.hash_floor if os.access(options.hash_floor, os.X_OK) else None
    for count in ["1"] if threads == "1" else ["1", threads]:
        rows.append(
            Tool(
                f"(hash every line with XXH3, threads: {count})",
                [floor, source, count] if floor else None,
                "the floor",
                "–",
                distinct=False,
            )
        )

    sort, sort_version = program("sort", "--version")
    for size in ([], ["-S", "8G"]):
        flags = ["-u", f"--parallel={threads}", *size]
        argv = [sort, *flags, "-T", scratch, source]
        name = " ".join(["sort", *flags])
        rows.append(
            Tool(name, argv if sort else None, "yes", "sorted", sort_version, {"LC_ALL": "C"})
        )

    for name, version_argument in (("gawk", "--version"), ("mawk", "-Wversion")):
        awk, awk_version = program(name, version_argument)
        argv = [awk, "!seen[$0]++", source] if awk else None
        rows.append(Tool(f"{name} '!seen[$0]++'", argv, "yes", "yes", awk_version, {"LC_ALL": "C"}))

    huniq, huniq_version = program("huniq", "--version")
    argv = [huniq] if huniq else None
    rows.append(Tool("huniq", argv, "64-bit hash", "yes", huniq_version, stdin=True))

    runiq, runiq_version = program("runiq", "--version")
    exactness = {"quick": "64-bit hash", "simple": "yes", "compact": "no"}
    for filter_name, exact in exactness.items():
        argv = [runiq, "--filter", filter_name, source] if runiq else None
        rows.append(Tool(f"runiq {filter_name}", argv, exact, "yes", runiq_version))

    python = options.python

    def library(name):
        return first_line([python, "-c", f"import {name}; print('{name}', {name}.__version__)"])

    duckdb = library("duckdb")
    for memory in ("", "512MB", "128MB"):
        name = f"DuckDB, memory_limit {memory}" if memory else "DuckDB SELECT DISTINCT"
        argv = [python, "-c", DUCKDB, source, "/dev/stdout", memory, threads] if duckdb else None
        rows.append(Tool(name, argv, "yes, but CR", "no", duckdb, piped=True))

    datafusion = library("datafusion")
    for name, memory in (("", ""), (", memory limit 512 MB", "512000000")):
        argv = [python, "-c", DATAFUSION, source, memory, threads] if datafusion else None
        rows.append(Tool(f"DataFusion SELECT DISTINCT{name}", argv, "yes, but CR, empty", "no", datafusion))

    polars = library("polars")
    for order, kept in (("any", "no"), ("ordered", "yes")):
        name = "Polars unique" + (", maintain_order" if kept == "yes" else ", streaming")
        argv = [python, "-c", POLARS, source, "/dev/stdout", order] if polars else None
        environment = {"POLARS_MAX_THREADS": threads}
        rows.append(Tool(name, argv, "yes, but CR", kept, polars, environment))
    return rows


def drain(descriptor, result):
    """Reads a pipe to its end and notes how many newlines came."""
    line_count = 0
    with open(descriptor, "rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            line_count += block.count(b"\n")
    result.append(line_count)


def count_lines(path):
    """Number of newlines in a file."""
    line_count = 0
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            line_count += block.count(b"\n")
    return line_count


def run_once(tool, source, scratch, output, time_limit_s):
    """Runs a tool; output is "null", "count" (through a pipe) or "file"."""
    argv = list(tool.argv)
    summary_path = os.path.join(scratch, "summary.json")
    if tool.summary:
        pathlib.Path(summary_path).unlink(missing_ok=True)
        argv += ["--summary", summary_path]

    result = Run()
    counts = []
    reader = emptier = None
    report_path = os.path.join(scratch, "run.txt")
    output_path = os.path.join(scratch, "output.txt")
    error_path = os.path.join(scratch, "error.txt")
    with (
        open(source if tool.stdin else os.devnull, "rb") as stdin,
        open(output_path if output == "file" else os.devnull, "wb") as plain_stdout,
        open(error_path, "wb") as stderr,
    ):
        stdout = plain_stdout.fileno()
        if output == "count":
            read_end, stdout = os.pipe()
            reader = threading.Thread(target=drain, args=(read_end, counts))
            reader.start()
        elif output == "null" and tool.piped:
            emptier = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            stdout = emptier.stdin.fileno()
        runner = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", RUNNER, report_path, *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=scratch,
            env={**os.environ, **tool.environment},
            start_new_session=True,
        )
        if reader:
            os.close(stdout)
        if emptier:
            emptier.stdin.close()
        try:
            runner.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
            result.error = f"stopped after {time_limit_s:.0f} s"
    if reader:
        reader.join()
        result.line_count = counts[0]
    if emptier:
        emptier.wait()

    if result.error:
        return result
    wall_s, cpu_s, peak_bytes, status = pathlib.Path(report_path).read_text().split()
    result.wall_s, result.cpu_s, result.peak_bytes = float(wall_s), float(cpu_s), int(peak_bytes)
    code = os.waitstatus_to_exitcode(int(status))
    if code != 0:
        lines = pathlib.Path(error_path).read_text(errors="replace").strip().splitlines()
        named = [line for line in lines if "Error" in line] or lines or ["no message"]
        result.error = f"failed ({code}): {named[-1]}"
    elif output == "file":
        result.line_count = count_lines(output_path)
    if tool.summary and not result.error:
        with open(summary_path, encoding="utf-8") as stream:
            result.phases = json.load(stream).get("run", {}).get("phase_wall_s", {})
    return result


def median(runs, field):
    """Median of a field over runs."""
    return statistics.median(getattr(run, field) for run in runs)


def ratio(value, base):
    """A value beside umbel's, for a table."""
    return f"{value / base:.2f}" if base else "–"


def machine():
    """What the figures depend on, in one line."""
    model = platform.machine()
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.split(":", 1)[1].strip() for line in stream if "model name" in line]
        model = names[0] if names else model
    except OSError:
        pass
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"{model}, {os.cpu_count()} CPUs, {memory_bytes / 2**30:.0f} GiB,"
        f" {platform.system()} {platform.release()}, load average {load}"
    )


def print_table(rows, runs, counts, expected):
    """The comparison, one row a tool."""
    base = [run for run in runs.get("umbel dedup", []) if not run.error]
    bases = {
        field: median(base, field) if base else 0 for field in ("wall_s", "cpu_s", "peak_bytes")
    }
    print(
        "| tool | wall s | CPU s | peak MB | wall ÷ umbel | CPU ÷ umbel | peak ÷ umbel"
        " | distinct lines | exact | order kept |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|---|")
    for tool in rows:
        if tool.argv is None:
            print(f"| {tool.name} | not installed | | | | | | | {tool.exact} | {tool.order} |")
            continue
        good = [run for run in runs[tool.name] if not run.error]
        if not good:
            error = runs[tool.name][0].error.replace("|", "/")
            print(f"| {tool.name} | {error} | | | | | | | {tool.exact} | {tool.order} |")
            continue
        wall_s, cpu_s = median(good, "wall_s"), median(good, "cpu_s")
        peak_bytes = median(good, "peak_bytes")
        count = counts.get(tool.name)
        if not tool.distinct:
            verdict = "–"
        elif count is None:
            verdict = "not counted"
        elif expected is None:
            verdict = f"{count:,}"
        else:
            verdict = f"{count:,}" if count == expected else f"**{count:,}: {count - expected:+,}**"
        print(
            f"| {tool.name} | {wall_s:.2f} | {cpu_s:.2f} | {peak_bytes / 1e6:,.0f}"
            f" | {ratio(wall_s, bases['wall_s'])} | {ratio(cpu_s, bases['cpu_s'])}"
            f" | {ratio(peak_bytes, bases['peak_bytes'])} | {verdict} | {tool.exact}"
            f" | {tool.order} |"
        )


def print_phases(rows, runs):
    """Where umbel's wall time went, medians over the rounds."""
    for tool in rows:
        good = [run for run in runs.get(tool.name, []) if run.phases]
        if not good:
            continue
        print(f"\n`{tool.name}`, seconds a phase:\n\n| phase | wall s |\n|---|--:|")
        for phase in good[0].phases:
            seconds = statistics.median(run.phases.get(phase, 0.0) for run in good)
            print(f"| {phase} | {seconds:.2f} |")


def parse_arguments():
    """The command line."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="text, one record a line, UTF-8")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds (default 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all CPUs")
    parser.add_argument("--to-file", action="store_true", help="write to a file, not /dev/null")
    parser.add_argument("--distinct", type=int, help="the right number of distinct lines")
    parser.add_argument("--no-count", action="store_true", help="skip the untimed counting round")
    parser.add_argument("--only", default="", help="comma-separated parts of tool names to run")
    parser.add_argument("--skip", default="", help="comma-separated parts of tool names to leave out")
    parser.add_argument("--python", default=sys.executable, help="has duckdb, polars, datafusion and pyarrow")
    parser.add_argument("--umbel", default=str(target / "release/umbel"))
    parser.add_argument("--hash-floor", default=str(target / "release/examples/hash_floor"))
    parser.add_argument("--scratch", help="parent of the scratch folder (default: the system's)")
    parser.add_argument("--time-limit-s", type=float, default=900.0, help="for one run")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.umbel = os.path.abspath(options.umbel)
    options.hash_floor = os.path.abspath(options.hash_floor)
    return options


def select(rows, options):
    """The rows that --only and --skip leave."""
    only = [part for part in options.only.split(",") if part]
    skip = [part for part in options.skip.split(",") if part]
    return [
        tool
        for tool in rows
        if (not only or any(part in tool.name for part in only))
        and not any(part in tool.name for part in skip)
    ]


def measure(rows, options, source, scratch):
    """All rounds: runs by tool, and the number of lines that each wrote."""
    present = [tool for tool in rows if tool.argv is not None]
    runs = {tool.name: [] for tool in present}
    counts = {}
    plan = [] if options.no_count or options.to_file else ["count"]
    plan += ["file" if options.to_file else "null"] * options.rounds
    for number, output in enumerate(plan):
        turn = number % max(1, len(present))
        for tool in present[turn:] + present[:turn]:
            if runs[tool.name] and all(run.error for run in runs[tool.name]):
                continue  # it failed once and will again
            run = run_once(tool, source, scratch, output, options.time_limit_s)
            print(
                f"round {number + 1}/{len(plan)} {output}: {tool.name}:"
                f" {run.error or f'{run.wall_s:.2f} s'}",
                file=sys.stderr,
                flush=True,
            )
            if run.line_count is not None and not run.error:
                counts[tool.name] = run.line_count
            if output != "count" or run.error:
                runs[tool.name].append(run)
    return runs, counts


def main():
    """Runs everything and prints the report; 1 if an exact tool counted wrongly."""
    options = parse_arguments()
    source = os.path.abspath(options.file)
    machine_before = machine()
    with tempfile.TemporaryDirectory(prefix="umbel-peers-", dir=options.scratch) as scratch:
        rows = select(tools(options, source, scratch), options)
        runs, counts = measure(rows, options, source, scratch)

    expected = options.distinct
    if expected is None:
        expected = next((counts[name] for name in counts if name.startswith("sort")), None)
    print(
        f"{os.path.basename(source)}: {os.path.getsize(source):,} bytes,"
        f" {count_lines(source):,} lines; {options.rounds} round(s), medians; output to"
        f" {'a file' if options.to_file else '/dev/null'}; the input is in the page cache.\n"
    )
    print_table(rows, runs, counts, expected)
    print_phases(rows, runs)
    print(
        "\nPeak is the highest resident set of any process of the run; it never reads below about"
        "\n10 MB, that of the process which starts it. DuckDB refuses /dev/null as a target: `cat`"
        "\nempties a pipe behind it and is not counted; DISTINCT does not keep the order there. \"But"
        "\nCR\": drops a carriage return at the end of a line, and needs UTF-8; \"empty\": and empty lines."
    )
    print(f"\nMachine: {machine_before} at the start.")
    versions = sorted({tool.version for tool in rows if tool.version})
    print("Versions: " + "; ".join(versions) + ".")
    wrong = [
        tool.name
        for tool in rows
        if tool.distinct
        and tool.exact != "no"
        and expected is not None
        and counts.get(tool.name, expected) != expected
    ]
    if wrong:
        sys.exit(f"peers.py: wrong number of distinct lines: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
