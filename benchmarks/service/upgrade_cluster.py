"""Nodes, filters and clients of upgrade.py: processes that run one of two releases, and clients that insert all the
time and note what was acknowledged."""

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import threading
import time

from resp import Connection, Refusal

# Log after which a node writes snapshots, the least that is allowed: so that a release reads those of the other one.
LOG_BYTES_MAX = 16 << 20
SHARDS = 4
RATE = 0.001

# Far above what each of them takes on a busy machine.
COMMAND_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
WELL_SECONDS_MAX = 120.0
# As long as `umbel filter` tries a call: until then a client of the Redis protocol tries again, too.
CALL_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.1
RETRY_SECONDS = 0.02

# Errors that docs/redis.md tells clients to send again after.
PASSING = ("TRYAGAIN", "LOADING", "CLUSTERDOWN", "UNCERTAIN")

LOG_LINES_SHOWN = 20


class Unexpected(Exception):
    """What should not happen, and ends the run."""


def until(what, condition, seconds_max=WELL_SECONDS_MAX):
    """Waits until the condition returns what is true, and returns that."""
    end = time.monotonic() + seconds_max
    while not (found := condition()):
        if time.monotonic() > end:
            raise Unexpected(f"not within {seconds_max:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
    return found


def environment():
    """That of this process without settings of Umbel."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UMBEL_")}


class Release:
    """A binary: its name in the tables, and its path."""

    def __init__(self, name, path):
        self.name, self.path = name, path

    def command(self, addresses, *words):
        """The words of a command of `umbel` that calls these addresses."""
        return [self.path, *words, "--cluster", ",".join(addresses)]

    def try_to(self, addresses, *words):
        """Exit code, output and errors of a command."""
        done = subprocess.run(self.command(addresses, *words), capture_output=True, text=True, env=environment(),
                              stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS_MAX)
        return done.returncode, done.stdout, done.stderr.strip()

    def run(self, addresses, *words):
        """The output of a command that has to succeed."""
        code, output, errors = self.try_to(addresses, *words)
        if code != 0:
            raise Unexpected(f"`umbel {' '.join(map(str, words))}` of {self.name} ends with {code}: {errors}")
        return output

    def run_json(self, addresses, *words):
        return json.loads(self.run(addresses, *words, "--json"))


class Node:
    """A node with a data folder of its own, which runs one release or the other."""

    def __init__(self, number, folder, ports):
        self.number = number
        self.address, self.resp = (f"127.0.0.1:{port}" for port in ports)
        self.resp_address = ("127.0.0.1", ports[1])
        self.data, self.log = folder / f"node-{number}", folder / f"node-{number}.log"
        self.child, self.release, self.log_begin = None, None, 0
        self.log.touch()

    def start(self, release, founders):
        self.release, self.log_begin = release, self.log.stat().st_size
        command = [release.path, "serve", "--data", self.data, "--listen", self.address, "--resp", self.resp,
                   "--initial-cluster", ",".join(founders), "--shards", str(SHARDS)]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                          env={**environment(), "UMBEL_LOG_BYTES_MAX": str(LOG_BYTES_MAX)})

    def stop(self):
        """Stops it as an operator does."""
        self.child.terminate()
        code = self.ended(STOP_SECONDS_MAX)
        if code != 0:
            how = "is not stopped by SIGTERM" if code is None else f"ends with {code} after SIGTERM"
            raise Unexpected(f"node {self.number} ({self.release.name}) {how}:\n{self.last_said()}")
        self.child = None

    def ended(self, seconds_max):
        """Its exit code; None if it runs on for so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.child.wait(seconds_max)
        return None

    def kill(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def said(self):
        """What it wrote since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self.log_begin)
            return log.read().decode(errors="replace")

    def last_said(self):
        return "\n".join(self.said().splitlines()[-LOG_LINES_SHOWN:])

    def is_ready(self):
        """Whether `/readyz` says that all of its replicas run, and have applied what was committed."""
        host, port = self.address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=CALL_SECONDS_MAX)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def is_well(self, asking, node_count):
        """Whether it sees all nodes, and a leader and all replicas of each shard, as `umbel cluster status` tells."""
        if self.child.poll() is not None:
            raise Unexpected(f"node {self.number} ({self.release.name}) ended by itself:\n{self.last_said()}")
        code, output, _ = asking.try_to([self.address], "cluster", "status", "--json")
        if code != 0:
            return False
        status = json.loads(output)
        nodes, shards = status["nodes"], status["shards"]
        return (len(nodes) == node_count and all(node["state"] == "live" and node["reachable"] for node in nodes)
                and all(shard["leader"] and len(shard["replicas"]) == node_count and not shard["target"]
                        for shard in shards) and self.is_ready())

    def snapshots(self):
        """Its snapshots of Raft groups by their names, with the name of the group before; 0 is the catalogue."""
        files = (self.data / "snapshots").glob("*/*.snap")
        return {str(file.relative_to(self.data)) for file in files}

    def fingerprint(self):
        """Length and digest of each file in its folder."""
        files = sorted(path for path in self.data.rglob("*") if path.is_file())
        return {str(path.relative_to(self.data)): (path.stat().st_size, digest(path)) for path in files}

    def changes_since(self, before):
        """What was done to its folder since that fingerprint. A longer log counts for nothing: a node that starts and
        stops notes what others tell it to be committed, and that it stopped."""
        now, changes = self.fingerprint(), []
        for name in sorted(before.keys() | now.keys()):
            if name not in now:
                changes.append(f"{name} was removed")
            elif name not in before:
                changes.append(f"{name} is new ({now[name][0]} bytes)")
            elif now[name] != before[name]:
                length, was = before[name]
                if not name.startswith("wal/") or digest(self.data / name, length) != was:
                    changes.append(f"{name} was changed")
        return changes


def digest(path, length=None):
    """Of the file, or of its first bytes."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read() if length is None else file.read(length)).digest()


class Filter:
    """A filter, and the items whose inserts were acknowledged, which are in a file, too."""

    def __init__(self, name, settings, folder):
        self.name, self.settings = name, settings
        self.is_replicated = "--replicated" in settings
        self.path = folder / f"acknowledged-{name}.txt"
        self.file, self.count, self.turn = open(self.path, "w"), 0, threading.Lock()

    def note(self, items):
        with self.turn:
            self.file.write("".join(f"{item}\n" for item in items))
            self.file.flush()
            self.count += len(items)

    def noted(self, folder):
        """A file of all that was acknowledged until now, and how much that is."""
        with self.turn:
            length, count = self.path.stat().st_size, self.count
        copy = folder / f"asked-{self.name}.txt"
        with open(self.path, "rb") as file:
            copy.write_bytes(file.read(length))
        return copy, count


class CallFailed(Exception):
    """A call that ended in an error, after all that the client tried by itself."""


class PipeClient:
    """One `umbel filter insert` for many calls: it reads items and writes answers, until it fails."""

    def __init__(self, release, name, addresses, folder):
        self.name = f"{name}, {release.name}"
        self.command = release.command(addresses, "filter", "insert", name, "--each")
        self.errors = folder / f"client-{name}-{release.name}.log"
        self.child = None

    def insert(self, items):
        """Which items were new, and how often they were sent: the client does not say that it retried."""
        if self.child is None:
            with open(self.errors, "wb") as errors:
                self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              stderr=errors, env=environment())
        answers = []
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write("".join(f"{item}\n" for item in items).encode())
            self.child.stdin.flush()
            while len(answers) < len(items) and (line := self.child.stdout.readline()):
                answers.append(line)
        if len(answers) < len(items):
            self.close()
            raise CallFailed(self.errors.read_text(errors="replace").strip() or "it ended without a word")
        expected = [{f"{word}\t{item}\n".encode() for word in ("new", "present")} for item in items]
        if any(line not in lines for line, lines in zip(answers, expected)):
            self.close()
            raise CallFailed(f"answers that were not expected: {answers[0]!r}...")
        return [line.startswith(b"new") for line in answers], 1

    def close(self):
        if self.child is not None:
            with contextlib.suppress(BrokenPipeError):
                self.child.stdin.close()
            self.child.kill()
            self.child.wait()
            self.child.stdout.close()
            self.child = None


class RedisClient:
    """A connection to one node, and to the next one after an error that docs/redis.md tells to send again after."""

    def __init__(self, name, addresses):
        self.filter, self.name, self.addresses, self.at = name, f"{name}, Redis", addresses, 0
        self.connection = None

    def insert(self, items):
        end, sent = time.monotonic() + CALL_SECONDS_MAX, 0
        while True:
            sent += 1
            try:
                if self.connection is None:
                    self.connection = Connection(self.addresses[self.at], CALL_SECONDS_MAX)
                return [answer == 1 for answer in self.connection.ask("BF.MADD", self.filter, *items)], sent
            except (Refusal, OSError) as error:
                self.close()
                self.at = (self.at + 1) % len(self.addresses)
                is_passing = isinstance(error, OSError) or str(error).startswith(PASSING)
                if not is_passing or time.monotonic() > end:
                    raise CallFailed(str(error)) from error
            time.sleep(RETRY_SECONDS)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Inserter(threading.Thread):
    """Inserts new items into a filter by one client, call after call, and notes what was acknowledged. A thread is
    enough: it waits for answers most of the time."""

    def __init__(self, client, into, batch_items, pause_seconds, prefix):
        super().__init__(daemon=True)
        self.client, self.filter, self.prefix = client, into, prefix
        self.batch_items, self.pause_seconds = batch_items, pause_seconds
        # Of each call: when it began and ended, whether it was answered, how often it was sent.
        self.calls, self.failures = [], []
        self.is_stopping, self.next = threading.Event(), 0

    def run(self):
        while not self.is_stopping.is_set():
            self.call()
            time.sleep(self.pause_seconds)
        self.client.close()

    def call(self):
        items = [f"{self.prefix}-{number}" for number in range(self.next, self.next + self.batch_items)]
        self.next += self.batch_items
        began, sent, is_answered = time.monotonic(), 1, False
        try:
            answers, sent = self.client.insert(items)
            is_answered = True
            self.filter.note(items)
            # The client itself names its requests, so that a retry gets the first answer. By chance, one in a
            # thousand is called present.
            if sent == 1 and not self.filter.is_replicated and sum(answers) * 2 < len(items):
                self.failures.append(f"{self.client.name}: {items[0]} and the items after it were called present "
                                     "when they were inserted for the first time")
        except CallFailed as error:
            self.failures.append(f"{self.client.name}: {error}")
        except Exception as error:  # Whatever it is, the run has to show it.
            self.failures.append(f"{self.client.name}: {error!r}")
        self.calls.append((began, time.monotonic(), is_answered, sent))

    def answered_since(self, began):
        return sum(is_answered and ended >= began for _, ended, is_answered, _ in self.calls)

    def gap(self, began, ended):
        """The longest time between two answers of which a part lies in this time; None without any."""
        answers = [at for _, at, is_answered, _ in self.calls if is_answered]
        pairs = zip(answers, answers[1:])
        return max((then - at for at, then in pairs if then > began and at < ended), default=None)

    def stop(self):
        """Whether it stopped."""
        self.is_stopping.set()
        self.join(2 * CALL_SECONDS_MAX)
        return not self.is_alive()
