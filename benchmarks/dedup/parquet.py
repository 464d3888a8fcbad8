#!/usr/bin/env python3
"""Times `umbel dedup` on Parquet beside the same rows as JSON Lines, and beside DuckDB.

    cargo build --release -p umbel
    cargo run --release -p umbel --example gen_urls -- 5000000 0.25 1 > urls5m.txt
    benchmarks/dedup/parquet.py urls5m.txt --rounds 3 --python PYTHON_WITH_DUCKDB > table.md

The rows are made by DuckDB, one a line of the file: `id`, `url` (the line), `crawled_at` (a timestamp, drawn
by the id), `title` and `body` (some 160 bytes of hexadecimal text), packed with zstd. Each job is
run by each tool once a round, in an order that rotates; a row shows medians over the rounds: wall
time, processor time, and the highest resident set (wait4). Outputs are files in the scratch folder.

Jobs: the first row of each URL; the newest row of each URL; the first of each URL in lower case.
DuckDB keeps any row of a URL in the first job, and in all of them no order. The rows kept are
counted, and the sum of `crawled_at` over them compared where both must keep the same rows.
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import peers

MAKE = r"""
import sys
import duckdb
lines, table, text = ("'" + path.replace("'", "''") + "'" for path in sys.argv[1:4])
connection = duckdb.connect()
connection.execute(f"SET threads = {sys.argv[4]}")
connection.execute("SET enable_progress_bar = false")
connection.execute(
    "CREATE TABLE rows AS SELECT row_number() OVER () AS id, line AS url,"
    " make_timestamp(1600000000000000 + (hash(row_number() OVER ()) % 100000000000000)::BIGINT) AS crawled_at"
    f" FROM read_csv({lines}, columns = {{'line': 'VARCHAR'}}, header = false, auto_detect = false,"
    " delim = '\x01', quote = '', escape = '', strict_mode = false)"
)
rows = "SELECT id, url, crawled_at, md5(url) AS title, repeat(md5(id::VARCHAR), 4) AS body FROM rows ORDER BY id"
connection.execute(f"COPY ({rows}) TO {table} (FORMAT parquet, COMPRESSION zstd)")
# A number, for JSON has no timestamps.
rows = rows.replace("crawled_at,", "epoch_us(crawled_at) AS crawled_at,")
connection.execute(f"COPY ({rows}) TO {text} (FORMAT json)")
"""

DUCKDB = r"""
import sys
import duckdb
query, source, target, threads, memory = sys.argv[1:6]
source, target = ("'" + path.replace("'", "''") + "'" for path in (source, target))
connection = duckdb.connect()
connection.execute(f"SET threads = {threads}")
connection.execute("SET enable_progress_bar = false")
connection.execute("SET preserve_insertion_order = false")
if memory:
    connection.execute(f"SET memory_limit = '{memory}'")
query = query.replace("ROWS", source)
connection.execute(f"COPY ({query}) TO {target} (FORMAT parquet, COMPRESSION zstd)")
"""

COUNT = r"""
import sys
import duckdb
source = "'" + sys.argv[1].replace("'", "''") + "'"
at = "epoch_us(crawled_at)" if sys.argv[1].endswith(".parquet") else "crawled_at"
print(*duckdb.execute(f"SELECT count(*), sum({at})::HUGEINT FROM {source}").fetchone())
"""

# Name, options of umbel, query of DuckDB, whether it says which row stays.
JOBS = [
    (
        "first row of each URL",
        ["--key", "url"],
        "SELECT DISTINCT ON (url) * FROM ROWS",
        False,
    ),
    (
        "newest row of each URL",
        ["--key", "url", "--keep", "best:crawled_at"],
        "SELECT * FROM ROWS QUALIFY row_number() OVER (PARTITION BY url ORDER BY crawled_at DESC, id) = 1",
        True,
    ),
    (
        "first row of each URL in lower case",
        ["--key", "url", "--normalise", "lower"],
        "SELECT DISTINCT ON (lower(url)) * FROM ROWS",
        False,
    ),
]


@dataclasses.dataclass
class Tool:
    """One row of a table: what it is called, and the command for an output path."""

    name: str
    command: object  # output path -> argv
    suffix: str
    says_which: bool


@dataclasses.dataclass
class Run:
    """What one run cost, and the error that ended it, if any."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    error: str = ""


def tools(options, job, table, text):
    """The tools of a job."""
    _, flags, query, says_which = job

    def umbel(source, *more):
        def command(output):
            return [options.umbel, "dedup", source, *flags, *more, "-q", "--overwrite", "-o", output]

        return command

    def duckdb(memory):
        def command(output):
            arguments = [query, table, output, str(options.threads), memory]
            return [options.python, "-c", DUCKDB, *arguments]

        return command

    return [
        Tool("umbel dedup, Parquet", umbel(table), ".parquet", True),
        Tool("umbel dedup --memory 128M, Parquet", umbel(table, "--memory", "128M"), ".parquet", True),
        Tool("umbel dedup, JSON Lines", umbel(text), ".jsonl", True),
        Tool("umbel dedup, JSON Lines, output packed", umbel(text), ".jsonl.zst", True),
        Tool("DuckDB, Parquet", duckdb(""), ".parquet", says_which),
        Tool("DuckDB, memory_limit 1GB, Parquet", duckdb("1GB"), ".parquet", says_which),
    ]


def run_once(argv, scratch, time_limit_s):
    """Runs a command to its end."""
    report, errors = os.path.join(scratch, "run.txt"), os.path.join(scratch, "error.txt")
    with open(errors, "wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", peers.RUNNER, report, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=scratch,
            timeout=time_limit_s,
            check=False,
        )
    if done.returncode != 0:
        return Run(error=f"could not be started ({done.returncode})")
    wall_s, cpu_s, peak_bytes, status = pathlib.Path(report).read_text().split()
    code = os.waitstatus_to_exitcode(int(status))
    if code != 0:
        lines = pathlib.Path(errors).read_text(errors="replace").strip().splitlines()
        return Run(error=f"failed ({code}): {(lines or ['no message'])[-1]}")
    return Run(float(wall_s), float(cpu_s), int(peak_bytes))


def measure(rows, options, scratch):
    """Runs all tools of a job; runs, kept rows and bytes written by tool."""
    runs, kept = {tool.name: [] for tool in rows}, {}
    for number in range(options.rounds):
        turn = number % len(rows)
        for tool in rows[turn:] + rows[:turn]:
            if any(run.error for run in runs[tool.name]):
                continue  # it failed once and will again
            output = os.path.join(scratch, "kept" + tool.suffix)
            run = run_once(tool.command(output), scratch, options.time_limit_s)
            print(f"round {number + 1}: {tool.name}: {run.error or f'{run.wall_s:.2f} s'}", file=sys.stderr)
            runs[tool.name].append(run)
            if not run.error and tool.name not in kept:
                argv = [options.python, "-c", COUNT, output]
                counted = subprocess.run(argv, capture_output=True, text=True, check=True)
                count, total = counted.stdout.split()
                kept[tool.name] = (int(count), int(total), os.path.getsize(output))
            if os.path.exists(output):
                os.remove(output)
    return runs, kept


def print_table(rows, runs, kept):
    """One row a tool, and the tools that kept what others did not."""
    print("| tool | wall s | CPU s | peak MB | wall ÷ umbel | peak ÷ umbel | rows kept | output MB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    base, wrong = None, []
    expected = kept.get(rows[0].name)
    for tool in rows:
        error = next((run.error for run in runs[tool.name] if run.error), "")
        if error or not runs[tool.name]:
            print(f"| {tool.name} | {error.replace('|', '/')} | | | | | | |")
            continue
        wall_s, cpu_s, peak = (
            statistics.median(getattr(run, field) for run in runs[tool.name])
            for field in ("wall_s", "cpu_s", "peak_bytes")
        )
        base = base or (wall_s, peak)
        count, total, size = kept[tool.name]
        if expected and (count != expected[0] or tool.says_which and total != expected[1]):
            wrong.append(tool.name)
        print(
            f"| {tool.name} | {wall_s:.2f} | {cpu_s:.2f} | {peak / 1e6:,.0f} | {wall_s / base[0]:.2f}"
            f" | {peak / base[1]:.2f} | {count:,} | {size / 1e6:,.0f} |"
        )
    return wrong


def parse_arguments():
    """The command line."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="text, one URL a line, UTF-8")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds (default 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of DuckDB (default: all CPUs)")
    parser.add_argument("--python", default=sys.executable, help="has duckdb")
    parser.add_argument("--umbel", default=str(target / "release/umbel"))
    parser.add_argument("--scratch", help="parent of the scratch folder (default: the system's)")
    parser.add_argument("--time-limit-s", type=float, default=900.0, help="for one run")
    options = parser.parse_args()
    options.umbel = os.path.abspath(options.umbel)
    return options


def main():
    """Runs everything and prints the report; 1 if a tool kept other rows than umbel on Parquet."""
    options = parse_arguments()
    machine, wrong = peers.machine(), []
    with tempfile.TemporaryDirectory(prefix="umbel-parquet-", dir=options.scratch) as scratch:
        table, text = (os.path.join(scratch, "rows" + end) for end in (".parquet", ".jsonl"))
        source = os.path.abspath(options.file)
        argv = [options.python, "-c", MAKE, source, table, text, str(options.threads)]
        subprocess.run(argv, check=True)
        print(
            f"{peers.count_lines(source):,} rows: {os.path.getsize(table) / 1e6:,.0f} MB of Parquet,"
            f" {os.path.getsize(text) / 1e6:,.0f} MB of JSON Lines; medians of {options.rounds} round(s).\n"
        )
        for job in JOBS:
            rows = tools(options, job, table, text)
            runs, kept = measure(rows, options, scratch)
            print(f"**{job[0]}** (`{' '.join(job[1])}`; `{job[2]}`)\n")
            wrong += [f"{job[0]}: {name}" for name in print_table(rows, runs, kept)]
            print(flush=True)
    version = peers.first_line([options.umbel, "--version"])
    duckdb = peers.first_line([options.python, "-c", "import duckdb; print('duckdb', duckdb.__version__)"])
    print(f"Machine: {machine} at the start. Versions: {version}; {duckdb}.")
    if wrong:
        sys.exit(f"parquet.py: other rows were kept: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
