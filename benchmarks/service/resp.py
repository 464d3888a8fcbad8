"""A client of the Redis protocol, and ports for the nodes that it calls, for the scripts beside it."""

import contextlib
import random
import socket


class Refusal(Exception):
    """A node answered with an error. The rest of an answer that is a list has not been read: close the connection."""


class Connection:
    """A connection to one node; no answer may take longer than `seconds_max`."""

    def __init__(self, address, seconds_max):
        self.socket = socket.create_connection(address, timeout=seconds_max)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def ask(self, *words):
        """The answer to a command: a number, text, bytes, None, or a list of these. An error, in a list too, is
        raised as a Refusal, and a connection that ends as an OSError."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts += [b"$%d\r\n" % len(word), word, b"\r\n"]
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the node closed the connection: see its log")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise Refusal(text.decode())
        if kind == b"+":
            return text.decode()
        if kind == b":":
            return int(text)
        if kind == b"*":
            return [self.reply() for _ in range(int(text))]
        if kind != b"$":
            raise Refusal(f"an answer that was not expected: {line!r}")
        length = int(text)
        if length < 0:
            return None
        value = self.reader.read(length + 2)
        if len(value) < length + 2:
            raise ConnectionError("the node closed the connection: see its log")
        return value[:-2]

    def close(self):
        self.reader.close()
        self.socket.close()


def free_ports(count):
    """Ports of 127.0.0.1 that nothing listens on, below those that systems take for outgoing connections: such a
    connection could take the port of a node that is being started again."""
    ports = []
    for port in random.sample(range(12_000, 32_000), 20_000):
        if len(ports) == count:
            break
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports
