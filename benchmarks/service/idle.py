#!/usr/bin/env python3
"""Measures how much memory a node takes for connections of the Redis protocol that send nothing.

    cargo build --release -p umbel
    benchmarks/service/idle.py                    # 9,000 connections: `ulimit -Hn` must allow 9,100 files
    benchmarks/service/idle.py --connections 500  # tries the benchmark itself

Starts `umbel serve --dev --no-fsync`, creates a filter, and compares the node's resident memory before the connections
are opened with that after, once it stands still; and again after one insert on each. Prints KiB a connection.
"""

import argparse
import pathlib
import resource
import tempfile

from resp import Connection
from scandump import ANSWER_SECONDS_MAX, ROOT, Node

# For the interpreter, and the connection that creates the filter.
OTHER_FILES = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--umbel", type=pathlib.Path, default=ROOT / "target/release/umbel",
                        help="the program to measure [default: target/release/umbel]")
    parser.add_argument("--connections", type=int, default=9_000, metavar="N",
                        help="connections that are opened [default: 9000]")
    args = parser.parse_args()
    if args.connections < 1:
        parser.error("--connections must be at least 1")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = args.connections + OTHER_FILES
    if most != resource.RLIM_INFINITY and most < needed:
        parser.error(f"--connections {args.connections} need {needed} open files, and `ulimit -Hn` is {most}")
    # The node inherits it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if most == resource.RLIM_INFINITY else most, most))
    with tempfile.TemporaryDirectory() as folder:
        node = Node(args.umbel, pathlib.Path(folder))
        try:
            node.wait()
            Connection(node.address, ANSWER_SECONDS_MAX).ask("BF.RESERVE", "k", "0.001", "1000000")
            before = node.idle_bytes()
            connections = [Connection(node.address, ANSWER_SECONDS_MAX) for _ in range(args.connections)]
            idle = node.idle_bytes()
            for number, connection in enumerate(connections):
                connection.ask("BF.ADD", "k", number)
            used = node.idle_bytes()
        finally:
            node.end()
    for name, now in (("idle", idle), ("after an insert", used)):
        print(f"{name}: {(now - before) / args.connections / 1024:.1f} KiB a connection")


if __name__ == "__main__":
    main()
