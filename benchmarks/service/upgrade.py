#!/usr/bin/env python3
"""Upgrades three nodes from one release to another, one after the other, under load, and shows that nothing is lost.

    git worktree add --detach target/old COMMIT_OR_TAG
    (cd target/old && cargo build --release --locked -p umbel --target-dir ../of-old)
    cargo build --release --locked -p umbel
    benchmarks/service/upgrade.py target/of-old/release/umbel target/release/umbel

Forms three nodes of OLD on 127.0.0.1 with fsync, and filters of several kinds. One `umbel filter insert` of OLD, one
of NEW, and a client of the Redis protocol insert into each of them all the time, and note what was acknowledged. Then
the script does what docs/cluster.md says under Releases: it stops a node by SIGTERM and starts NEW in its folder,
waits until `umbel cluster status` and `/readyz` say that all is well, and goes on with the next one. The first node
goes back to OLD once, after NEW has written snapshots into its folder. In the end the version of the cluster is
raised, what came with it is used, and OLD is started twice more: it has to end with an error, and to leave what is
in its folder.

Between these steps the releases run mixed for a while, and each node is asked for all that was acknowledged, while the
load goes on; `umbel cluster scrub` compares the replicas bit by bit.

Prints Markdown. Exits with 1 if an item is absent, a call fails, or anything else happens that should not; the folder
with data, logs and items is kept then.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from resp import Connection, Refusal, free_ports
from upgrade_cluster import (CALL_SECONDS_MAX, COMMAND_SECONDS_MAX, RATE, STOP_SECONDS_MAX, Filter, Inserter, Node,
                             PipeClient, RedisClient, Release, Unexpected, environment, until)

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODES = 3

# The smallest number of answers that each client gets in the time in which releases run mixed.
ANSWERS_MIN = 5
# A file of so many items is inserted into one filter until a node writes snapshots; a million is all of its log.
BULK_ITEMS, BULK_ROUNDS_MAX = 100_000, 40
# Items of a command when a client of the Redis protocol asks.
ASKED_ITEMS = 1_000
# Rounds of two imports at once under one name, and the items of each of the two filters.
IMPORT_ROUNDS, IMPORT_ITEMS = 5, 20_000
LISTED_MAX = 5

# The versions of the cluster with which came merges of shards, and imports of which the second is refused.
MERGES_SINCE, IMPORTS_SINCE = 3, 5
# Members of an answer of `umbel cluster scrub --json` that say that something had changed, or still differs.
DIFFERENCES = ("node_lost_bits", "partner_lost_bits", "lost_bits", "surplus_bits", "union_blocks", "left_blocks",
               "answers_differ")
# Builds that do not say so name the first entry of the log that they cannot read.
REFUSAL = re.compile(r"the cluster is at version (\d+), and this release runs clusters of versions? [\d to]+|"
                     r"record of \d+ bytes at offset \d+, entry \S+ \S+ of meta group")


class Upgrade:
    """A run: its nodes, filters and clients, what each step took, and what was not as it should be."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.old, self.new = Release("OLD", args.old.resolve()), Release("NEW", args.new.resolve())
        ports = free_ports(2 * NODES)
        self.nodes = [Node(at + 1, folder, ports[2 * at:2 * at + 2]) for at in range(NODES)]
        self.addresses = [node.address for node in self.nodes]
        planned = ("--capacity", str(args.capacity), "--rate", str(RATE))
        # The scalable one grows from the beginning.
        small = ("--capacity", "10000", "--rate", str(RATE))
        self.filters = [Filter(name, settings, folder) for name, settings in [
            ("blocked", planned),
            ("counting", (*planned, "--kind", "counting")),
            ("scalable", (*small, "--kind", "scalable")),
            ("cuckoo", (*planned, "--kind", "cuckoo")),
            ("replicated", (*planned, "--replicated")),
            # Created over the port of the Redis protocol, which is asked, too.
            ("redisbloom", ("KIND", "redisbloom", "CAPACITY", args.capacity, "ERROR", RATE)),
        ]]
        # It gets files of items, and no load.
        self.bulk = Filter("bulk", planned, folder)
        self.inserters, self.steps, self.problems, self.checks = [], [], [], 0
        # The newest version that OLD runs, the version of the cluster, and what OLD says when that is above.
        self.old_newest, self.version, self.refusal = None, None, None

    @contextlib.contextmanager
    def step(self, name):
        print(f"{name} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps.append((name, began, time.monotonic()))

    def founders_start(self):
        for node in self.nodes:
            node.start(self.old, self.addresses)

    def wait_until_well(self):
        """Waits until every node says so, to the clients of both releases."""
        for node in self.nodes:
            for asking in (self.old, self.new):
                until(f"node {node.number} and what it sees are well, asked by {asking.name}",
                      lambda node=node, asking=asking: node.is_well(asking, NODES))

    def form(self):
        self.founders_start()
        self.wait_until_well()
        for made in [*self.filters, self.bulk]:
            if made.name == "redisbloom":
                self.ask_redis(self.nodes[0], "UMBEL.CREATE", made.name, *made.settings)
            else:
                self.old.run(self.addresses, "filter", "create", made.name, *made.settings)
        found = self.old.run_json(self.addresses, "cluster", "upgrade", "--check")
        self.version = found["cluster_version"]
        self.old_newest = min(node["versions"][1] for node in found["nodes"])

    def start_load(self):
        for number, into in enumerate(self.filters):
            # Not all with the same node: each client begins with the first address.
            turned = self.addresses[number % NODES:] + self.addresses[:number % NODES]
            resp = [node.resp_address for node in self.nodes]
            resp = resp[number % NODES:] + resp[:number % NODES]
            clients = [PipeClient(self.old, into.name, turned, self.folder),
                       PipeClient(self.new, into.name, turned, self.folder), RedisClient(into.name, resp)]
            for letter, client in zip("onr", clients):
                self.inserters.append(Inserter(client, into, self.args.batch, self.args.pause_ms / 1000,
                                               f"{into.name}-{letter}"))
        for inserter in self.inserters:
            inserter.start()

    def stop_load(self):
        for inserter in self.inserters:
            inserter.is_stopping.set()
        for inserter in self.inserters:
            if not inserter.stop():
                self.problems.append(f"{inserter.client.name}: a call is neither answered nor refused")
                inserter.client.close()

    def go_on(self):
        """Lets the load go on for a while, in which every client is answered."""
        began = time.monotonic()
        time.sleep(self.args.mixed_seconds)
        for inserter in self.inserters:
            until(f"{inserter.client.name}: {ANSWERS_MIN} answers",
                  lambda inserter=inserter: inserter.answered_since(began) >= ANSWERS_MIN)

    def change(self, node, release):
        """Stops a node and starts a release in its folder."""
        node.stop()
        node.start(release, self.addresses)
        self.wait_until_well()

    def fill_until_snapshots(self, node):
        """Inserts files of items until the node has written snapshots of the catalogue and of a shard, which the other
        release has to read."""
        before = node.snapshots()
        for number in range(BULK_ROUNDS_MAX):
            written = {name.split("/")[1] for name in node.snapshots() - before}
            if "0" in written and len(written) > 1:
                return
            items = [f"bulk-{number}-{item}" for item in range(BULK_ITEMS)]
            file = self.folder / "bulk.txt"
            file.write_text("".join(f"{item}\n" for item in items))
            release = (self.old, self.new)[number % 2]
            release.run(self.addresses, "filter", "insert", self.bulk.name, "--file", str(file))
            self.bulk.note(items)
        raise Unexpected(f"node {node.number} wrote no snapshots of the catalogue and of a shard in the meantime")

    def ask_redis(self, node, *words):
        connection = Connection(node.resp_address, CALL_SECONDS_MAX)
        try:
            return connection.ask(*words)
        except (Refusal, OSError) as error:
            raise Unexpected(f"node {node.number} answers {words[0]} by: {error}") from error
        finally:
            connection.close()

    def absent(self, node, asked, file):
        """The items of the file that the node calls absent."""
        if asked.name == "redisbloom":
            items, absent = file.read_text().splitlines(), []
            for first in range(0, len(items), ASKED_ITEMS):
                part = items[first:first + ASKED_ITEMS]
                answers = self.ask_redis(node, "BF.MEXISTS", asked.name, *part)
                absent += [item for item, answer in zip(part, answers, strict=True) if answer != 1]
            return absent
        # Clients of both releases ask every node, in turn.
        release = (self.old, self.new)[(node.number + self.checks) % 2]
        question = ("filter", "contains", asked.name, "--file", str(file))
        if release.run_json([node.address], *question, "--count")["absent"] == 0:
            return []
        lines = release.run([node.address], *question).splitlines()
        return [line.removeprefix("absent\t") for line in lines if line.startswith("absent\t")] or ["once absent"]

    def check(self):
        """Asks each node for all that was acknowledged until now, while the load goes on, and compares the replicas."""
        self.checks += 1
        for asked in [*self.filters, self.bulk]:
            file, count = asked.noted(self.folder)
            if count == 0:
                continue
            if asked.is_replicated:
                # Other nodes are promised to have it only then.
                self.new.run(self.addresses, "filter", "flush", asked.name)
            for node in self.nodes:
                if absent := self.absent(node, asked, file):
                    self.problems.append(f"LOST: node {node.number} ({node.release.name}) calls {len(absent)} of "
                                         f"{count} items of {asked.name} absent: {', '.join(absent[:LISTED_MAX])}")
        self.scrub()

    def scrub(self):
        """Compares the replicas of all filters, bit by bit; again where one could not be compared at the moment."""
        failed = []

        def is_compared():
            _, output, errors = self.new.try_to(self.addresses, "cluster", "scrub", "--all", "--json")
            if not output:
                raise Unexpected(f"`umbel cluster scrub --all` fails: {errors}")
            differing, failed[:] = parse_scrub(output)
            self.problems += [f"replicas differ: {what}" for what in differing]
            return not failed

        try:
            until("all replicas can be compared", is_compared)
        except Unexpected as error:
            raise Unexpected(f"{error}: {failed[:LISTED_MAX]}") from error

    def refuse_to_raise(self):
        """While a node runs OLD, the version stays."""
        code, output, errors = self.new.try_to(self.addresses, "cluster", "upgrade", "--json")
        is_held = self.newest() > self.old_newest
        if (code != 0) != is_held or (is_held and self.nodes[-1].address not in errors):
            self.problems.append(f"`umbel cluster upgrade` with a node of OLD ends with {code}: {output}{errors}")
        self.expect_version(self.version)

    def newest(self):
        found = self.new.run_json(self.addresses, "cluster", "upgrade", "--check")
        return max(node["versions"][1] for node in found["nodes"])

    def expect_version(self, expected):
        for node in self.nodes:
            found = self.new.run_json([node.address], "cluster", "status")["cluster_version"]
            if found != expected:
                self.problems.append(f"the cluster is at version {found} by node {node.number}, not {expected}")

    def raise_version(self):
        """Raises the version as far as NEW can."""
        newest = self.newest()
        found = self.new.run_json(self.addresses, "cluster", "upgrade", "--check")
        if found["newest_common"] != newest or found["cluster_version"] != self.version:
            raise Unexpected(f"`umbel cluster upgrade --check` says {found}")
        self.new.run(self.addresses, "cluster", "upgrade")
        self.version = newest
        # Each node learns of it from the catalogue's log.
        until(f"all nodes are at version {newest}", lambda: all(
            self.new.run_json([node.address], "cluster", "status")["cluster_version"] == newest for node in self.nodes))

    def split_and_merge(self):
        self.new.run(self.addresses, "cluster", "split")
        self.wait_until_well()
        self.new.run(self.addresses, "cluster", "merge")
        self.wait_until_well()

    def import_twice_at_once(self):
        """Two imports at once under one name, through two nodes: one is refused, and the filter is the other one's."""
        files = []
        for name in ("left", "right"):
            items, export = self.folder / f"{name}.txt", self.folder / f"{name}.export"
            items.write_text("".join(f"{name}-{number}\n" for number in range(IMPORT_ITEMS)))
            self.new.run(self.addresses, "filter", "create", name, "--capacity", str(IMPORT_ITEMS), "--rate", str(RATE))
            self.new.run(self.addresses, "filter", "insert", name, "--file", str(items))
            self.new.run(self.addresses, "filter", "export", name, "--out", str(export))
            files.append((items, export))
        for number in range(IMPORT_ROUNDS):
            name = f"twice-{number}"
            children = [subprocess.Popen(
                self.new.command([node.address], "filter", "import", name, "--file", str(export)), text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
                for node, (_, export) in zip(self.nodes, files)]
            errors = [child.communicate(timeout=COMMAND_SECONDS_MAX)[1].strip() for child in children]
            is_loaded = [child.returncode == 0 for child in children]
            if sorted(is_loaded) != [False, True] or "exists already" not in "".join(errors):
                raise Unexpected(f"two imports at once, of which one should be refused: {is_loaded}, {errors}")
            present = [self.new.run_json(self.addresses, "filter", "contains", name, "--count", "--file",
                                         str(items))["present"] for items, _ in files]
            winner = is_loaded.index(True)
            # Ten times the rate, so that chance does not matter.
            if present[winner] != IMPORT_ITEMS or present[1 - winner] > 10 * RATE * IMPORT_ITEMS:
                self.problems.append(f"two imports at once: the filter has {present} of {IMPORT_ITEMS} items each")
            self.new.run(self.addresses, "filter", "drop", name)

    def refuse_old(self, node):
        """OLD on the folder of a node of the raised cluster ends with an error that says why, and changes nothing.
        Then NEW is started there again."""
        node.stop()
        before = node.fingerprint()
        node.start(self.old, self.addresses)
        code = node.ended(STOP_SECONDS_MAX)
        if code is None:
            raise Unexpected(f"OLD runs on a cluster of version {self.version}, which it cannot know:\n"
                             f"{node.last_said()}")
        said = node.said()
        found = REFUSAL.search(said)
        self.refusal = (said.strip().splitlines() or ["nothing"])[-1]
        if code != 1 or not found or int(found[1] or 0) > self.version or "panicked" in said:
            self.problems.append(f"OLD ends with {code}, and does not say that it cannot run version {self.version}:\n"
                                 f"{node.last_said()}")
        if changes := node.changes_since(before):
            self.problems.append(f"OLD, which was refused, changed the folder of node {node.number}: "
                                 f"{'; '.join(changes)}")
        node.start(self.new, self.addresses)
        self.wait_until_well()

    def run(self):
        first, *others = self.nodes
        with self.step("three nodes of OLD are formed"):
            self.form()
        self.start_load()
        with self.step("OLD alone"):
            self.go_on()
            self.check()
        with self.step("node 1: OLD to NEW"):
            self.change(first, self.new)
        with self.step("mixed: one of three is NEW"):
            self.go_on()
            self.fill_until_snapshots(first)
            self.check()
        with self.step("node 1: back to OLD"):
            self.change(first, self.old)
        with self.step("OLD alone, with snapshots of NEW"):
            self.go_on()
            self.check()
        with self.step("node 1: OLD to NEW, again"):
            self.change(first, self.new)
        for node in others:
            if node is others[-1]:
                with self.step("mixed: two of three are NEW"):
                    self.go_on()
                    self.refuse_to_raise()
                    self.check()
            with self.step(f"node {node.number}: OLD to NEW"):
                self.change(node, self.new)
        with self.step("NEW alone, before the version is raised"):
            self.go_on()
            self.expect_version(self.version)
            self.check()
        self.finish()

    def finish(self):
        """All nodes run NEW: what the raised version permits, and what OLD says to it."""
        with self.step("the version is raised"):
            self.raise_version()
        is_above_old = self.version > self.old_newest
        if is_above_old:
            with self.step("node 3: OLD is refused, NEW again"):
                self.refuse_old(self.nodes[2])
        if self.version >= MERGES_SINCE:
            with self.step("a shard is split, and merged again"):
                self.split_and_merge()
        if self.version >= IMPORTS_SINCE:
            with self.step("two imports at once under one name"):
                self.import_twice_at_once()
        if is_above_old:
            # Its log has entries now that OLD cannot read.
            with self.step("node 2: OLD is refused, NEW again"):
                self.refuse_old(self.nodes[1])
        with self.step("NEW alone, version raised"):
            self.go_on()
            self.check()
        self.stop_load()
        with self.step("all are asked once more, without load"):
            self.check()
        with self.step("all nodes are stopped and started again"):
            for node in self.nodes:
                node.stop()
            for node in self.nodes:
                node.start(self.new, self.addresses)
            self.wait_until_well()
            self.check()
            for node in self.nodes:
                node.stop()

    def collect(self):
        """What clients and logs of nodes say that should not be."""
        for inserter in self.inserters:
            self.problems += inserter.failures[:LISTED_MAX]
            if len(inserter.failures) > LISTED_MAX:
                self.problems.append(f"{inserter.client.name}: and {len(inserter.failures) - LISTED_MAX} more")
        for node in self.nodes:
            lines = node.log.read_text(errors="replace").splitlines()
            self.problems += [f"node {node.number}: {line}" for line in lines if "panicked at" in line]

    def report(self):
        print("| step | s | calls | sent again | failed calls | longest gap, ms |\n|---|--:|--:|--:|--:|--:|")
        for name, began, ended in self.steps:
            calls = [call for inserter in self.inserters for call in inserter.calls if began <= call[1] < ended]
            gaps = [gap for inserter in self.inserters if (gap := inserter.gap(began, ended)) is not None]
            failed = sum(not call[2] for call in calls)
            gap = f"{max(gaps) * 1000:,.0f}" if gaps else "–"
            print(f"| {name} | {ended - began:,.1f} | {len(calls):,} | {sum(call[3] - 1 for call in calls):,} "
                  f"| {failed:,} | {gap} |")
        print("\n| filter | acknowledged items |\n|---|--:|")
        for made in [*self.filters, self.bulk]:
            print(f"| {made.name} | {made.count:,} |")
        if self.old_newest is not None:
            print(f"\nOLD runs clusters of versions up to {self.old_newest}; the cluster is at version {self.version}. "
                  f"{self.checks} times each node was asked for all that had been acknowledged.")
            refused = f"says `{self.refusal}`" if self.refusal else "was not started on a version that it cannot run"
            print(f"In the end OLD {refused}.")
        for problem in self.problems:
            print(f"\n* {problem}")

    def end(self):
        """Ends what still runs: first the clients, so that they do not fail for lack of nodes."""
        self.stop_load()
        for node in self.nodes:
            node.kill()


def parse_scrub(output):
    """What differs, and why something could not be compared, by an answer of `umbel cluster scrub --json`."""
    found, differing, failed = json.loads(output), [], []
    for compared in [*found["pairs"], *found["shards"]]:
        parts = [compared, *compared.get("replicas", [])]
        failed += [f"{compared['filter']}: {part['failure']}" for part in parts if part.get("failure")]
        if any(part.get(name) for part in parts for name in DIFFERENCES):
            differing.append(json.dumps(compared))
    return differing, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("old", type=pathlib.Path, metavar="OLD", help="`umbel` of the release that the nodes have")
    parser.add_argument("new", type=pathlib.Path, metavar="NEW", help="`umbel` of the release that they get")
    parser.add_argument("--mixed-seconds", type=float, default=10.0,
                        help="how long the load goes on between the changes, at least [default: 10]")
    parser.add_argument("--capacity", type=int, default=2_000_000,
                        help="items that each filter is planned for; a long run needs more [default: 2000000]")
    parser.add_argument("--batch", type=int, default=20, help="items of a call [default: 20]")
    parser.add_argument("--pause-ms", type=float, default=20.0,
                        help="pause of each of the 18 clients between two calls [default: 20]")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target/bench",
                        help="folder for data and logs, which are removed if all is well [default: target/bench]")
    args = parser.parse_args()
    for binary in (args.old, args.new):
        if not (binary.is_file() and os.access(binary, os.X_OK)):
            parser.error(f"{binary} is no program: the first lines of {__file__} say how to build it")
    if args.mixed_seconds < 0 or args.pause_ms < 0 or args.batch < 1 or args.capacity < 1:
        parser.error("--mixed-seconds and --pause-ms must not be negative, --batch and --capacity be positive")
    args.data.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="upgrade-", dir=args.data))
    # As by ctrl-c, so that nodes are ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    upgrade = Upgrade(args, folder)
    try:
        upgrade.run()
    except (Unexpected, OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        upgrade.problems.append(f"ended: {error}" if isinstance(error, Unexpected) else f"ended: {error!r}")
    finally:
        upgrade.end()
    upgrade.collect()
    upgrade.report()
    if upgrade.problems:
        sys.exit(f"data, logs and items are kept in {folder}")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
