//! The Redis protocol of `umbel serve --resp`: with raw sockets, beside other clients, and with redis-py and
//! node-redis if they are installed.

use crate::sandbox::Sandbox;
use crate::serve::Server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Far more than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, and asserts that this answer arrives.
fn ask(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected, "{request:?}");
}

#[test]
fn both_protocols_see_the_same_filters() {
    let sandbox = Sandbox::new();
    let (server, address) = Server::start_with_redis(&sandbox);
    let mut two = connect(&address);
    ask(
        &mut two,
        "*4\r\n$10\r\nBF.RESERVE\r\n$4\r\nseen\r\n$4\r\n0.01\r\n$4\r\n1000\r\n",
        "+OK\r\n",
    );
    let pipeline =
        "BF.ADD seen alice\r\nBF.ADD seen bob\r\nBF.ADD seen alice\r\nBF.MEXISTS seen bob x\r\n";
    ask(&mut two, pipeline, ":1\r\n:1\r\n:0\r\n*2\r\n:1\r\n:0\r\n");
    let mut three = connect(&address);
    three.write_all(b"HELLO 3\r\n").unwrap();
    let mut head = [0; 4];
    three.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"%7\r\n");

    let ran = server.run(&sandbox, "filter insert seen alice carol --each");
    assert_eq!(ran.kept_text(), "present\talice\nnew\tcarol\n");
    ask(&mut two, "BF.EXISTS seen carol\r\n", ":1\r\n");
    server.run(&sandbox, "filter create other --capacity 1000 --rate 0.01").ended_with(0);
    ask(&mut two, "EXISTS other\r\n", ":1\r\n");
    ask(&mut two, "DEL seen other\r\n", ":2\r\n");
    ask(&mut two, "DBSIZE\r\n", ":0\r\n");
    // Open connections do not delay the end of the server.
    assert_eq!(server.stop(), Some(0));
    let mut rest = Vec::new();
    // A reset ends the connection, too.
    let _ = two.read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

/// A session with redis-py, which prints what it gets.
const PYTHON: &str = r#"
import sys, redis
host, port = sys.argv[1].rsplit(":", 1)
for protocol in (2, 3):
    db = protocol
    r = redis.Redis(host=host, port=int(port), protocol=protocol, db=db)
    assert r.ping()
    bf = r.bf()
    assert bf.create("k", 0.01, 1000)
    assert bf.add("k", "a") == 1 and bf.add("k", "a") == 0
    assert bf.madd("k", "a", "b") == [0, 1]
    assert bf.insert("k", ["b", "c"]) == [0, 1]
    assert bf.exists("k", "a") == 1 and bf.mexists("k", "a", "x") == [1, 0]
    assert bf.card("k") == 3
    info = bf.info("k")
    # Releases of redis-py hand on an object, a map with their own names, or the map as it came.
    is_map = isinstance(info, dict)
    capacity = info.get("capacity", info.get(b"Capacity")) if is_map else info.capacity
    assert capacity == 1000, info
    try:
        bf.create("k", 0.01, 1000)
        raise SystemExit("made twice")
    except redis.ResponseError as error:
        assert str(error) == "item exists", error
    pipe = r.pipeline()
    for item in range(200):
        pipe.bf().add("k", item)
    assert sum(pipe.execute()) > 190
    pipe = r.pipeline(transaction=False)
    for item in range(200):
        pipe.execute_command("BF.EXISTS", "k", item)
    assert all(pipe.execute())
    chunks, at = [], 0
    while True:
        at, data = bf.scandump("k", at)
        if at == 0:
            break
        chunks.append((at, data))
    assert all(bf.loadchunk("copy", at, data) for at, data in chunks)
    assert bf.mexists("copy", "a", 199) == [1, 1] and bf.card("copy") == bf.card("k")
    assert r.delete("copy") == 1
    assert r.exists("k") == 1 and r.keys("*") == [b"k"] and list(r.scan_iter()) == [b"k"]
    assert r.type("k") == b"MBbloom--" and r.delete("k") == 1 and r.dbsize() == 0
    assert bf.add("k", "a") == 1 and r.flushdb() and r.dbsize() == 0
    assert r.info()["redis_mode"] == "standalone" and r.client_id() > 0 and r.time()
cluster = redis.RedisCluster(host=host, port=int(port))
assert cluster.execute_command("BF.ADD", "c", "x") == 1
assert cluster.execute_command("BF.EXISTS", "c", "x") == 1
print("done")
"#;

/// A session with node-redis, which finds the modules of its package manager or those in NODE_PATH.
const NODE_JS: &str = r#"
const assert = require("assert");
const { createClient, createCluster, commandOptions, ErrorReply } = require("redis");
const [host, port] = [process.argv[1].replace(/:\d+$/, ""), Number(process.argv[1].replace(/^.*:/, ""))];
const same = assert.deepStrictEqual;

// node-redis has a family of functions for each module.
async function session(r) {
    same(await r.ping(), "PONG");
    same(await r.bf.reserve("k", 0.01, 1000), "OK");
    same([await r.bf.add("k", "a"), await r.bf.add("k", "a")], [true, false]);
    same(await r.bf.mAdd("k", ["a", "b"]), [false, true]);
    same(await r.bf.insert("k", ["b", "c"]), [false, true]);
    same([await r.bf.exists("k", "a"), await r.bf.mExists("k", ["a", "x"])], [true, [true, false]]);
    same(await r.sendCommand(["BF.CARD", "k"]), 3);
    same((await r.bf.info("k")).capacity, 1000);
    await assert.rejects(r.bf.reserve("k", 0.01, 1000), (e) => e instanceof ErrorReply && e.message === "ERR item exists");

    same(await r.cf.reserve("c", 1000), "OK");
    same([await r.cf.add("c", "a"), await r.cf.addNX("c", "a"), await r.cf.add("c", "a")], [true, false, true]);
    same([await r.cf.count("c", "a"), await r.cf.exists("c", "x"), await r.cf.del("c", "a")], [2, false, true]);

    // Calls of one turn of the event loop are a pipeline.
    const items = Array.from({ length: 200 }, (_, item) => String(item));
    const added = await Promise.all(items.map((item) => r.bf.add("k", item)));
    assert(added.filter(Boolean).length > 190);
    same(await r.multi().bf.exists("k", "a").bf.exists("k", "7").exists("none").exec(), [true, true, 0]);

    same([await r.expire("k", 1000), (await r.ttl("k")) > 500, await r.persist("k"), await r.ttl("k")], [true, true, true, -1]);
    const keys = [];
    for await (const key of r.scanIterator()) keys.push(key);
    same(keys.sort(), ["c", "k"]);
    same([await r.rename("c", "d"), await r.exists(["c", "d"]), await r.type("k")], ["OK", 1, "MBbloom--"]);
    same([await r.copy("k", "l"), await r.bf.exists("l", "7"), await r.dbSize()], [true, true, 3]);

    for (let at = 0; ;) {
        const { iterator, chunk } = await r.bf.scanDump(commandOptions({ returnBuffers: true }), "k", at);
        if (iterator === 0) break;
        same(await r.bf.loadChunk("m", iterator, chunk), "OK");
        at = iterator;
    }
    same(await r.bf.mExists("m", ["a", "199"]), [true, true]);
    same(await r.del(["d", "k", "l", "m"]), 4);
    same([await r.dbSize(), await r.flushDb()], [0, "OK"]);
}

async function main() {
    for (const more of [{}, { name: "back-end", database: 3 }]) {
        const r = createClient({ socket: { host, port }, ...more });
        await r.connect();
        await session(r);
        same(await r.clientGetName(), more.name ?? null);
        await r.quit();
    }
    const cluster = createCluster({ rootNodes: [{ socket: { host, port } }] });
    await cluster.connect();
    same([await cluster.bf.add("c", "x"), await cluster.bf.exists("c", "x"), await cluster.del("c")], [true, true, 1]);
    await cluster.quit();
    console.log("done");
}
main().catch((e) => { console.error(e); process.exit(1); });
"#;

/// The pieces of a dump equal the file of an export; either side loads what the other wrote.
#[test]
fn a_dump_is_an_export() {
    let sandbox = Sandbox::new();
    let (server, address) = Server::start_with_redis(&sandbox);
    let mut client = connect(&address);
    ask(&mut client, "BF.ADD seen alice\r\n", ":1\r\n");
    client.write_all(b"BF.SCANDUMP seen 0\r\n").unwrap();
    let mut line = || {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            client.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    };
    assert_eq!(line(), "*2\r\n");
    let iterator = line();
    let length: usize = line()[1..].trim().parse().unwrap();
    let mut piece = vec![0; length + 2];
    client.read_exact(&mut piece).unwrap();
    let next = format!("BF.SCANDUMP seen {}\r\n", iterator[1..].trim());
    ask(&mut client, &next, "*2\r\n:0\r\n$0\r\n\r\n");
    sandbox.write("seen.umbel", &piece[..length]);
    server.run(&sandbox, "filter import copy --file seen.umbel").ended_with(0);
    ask(&mut client, "BF.MEXISTS copy alice bob\r\n", "*2\r\n:1\r\n:0\r\n");

    server.run(&sandbox, "filter export copy --out copy.umbel").ended_with(0);
    let written = std::fs::read(sandbox.path("copy.umbel")).unwrap();
    let head =
        format!("*4\r\n$12\r\nBF.LOADCHUNK\r\n$5\r\nthird\r\n$1\r\n1\r\n${}\r\n", written.len());
    client.write_all(&[head.as_bytes(), &written, b"\r\n"].concat()).unwrap();
    ask(&mut client, "BF.MEXISTS third alice bob\r\n", "+OK\r\n*2\r\n:1\r\n:0\r\n");
}

/// Runs the script of a client against a node, unless this check says that the client is not here.
fn run_session(program: &str, [flag, check, script]: [&str; 3], name: &str) {
    let is_there = Command::new(program).args([flag, check]).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {program} with {name} is not here");
        return;
    }
    let sandbox = Sandbox::new();
    let (server, address) = Server::start_with_redis(&sandbox);
    let output = Command::new(program).args([flag, script, &address]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{said}");
    drop(server);
}

#[test]
fn redis_py_is_at_home() {
    run_session("python3", ["-c", "import redis", PYTHON], "redis-py (pip install redis)");
}

#[test]
fn node_redis_is_at_home() {
    let check = "require('redis')";
    run_session(
        "node",
        ["-e", check, NODE_JS],
        "node-redis (npm install redis, Debian: node-redis)",
    );
}

/// Most answers are longer than their requests.
#[test]
fn a_transaction_is_answered_while_it_is_carried_out() {
    let sandbox = Sandbox::new();
    let (server, address) = Server::start_with_redis(&sandbox);
    let mut stream = connect(&address);
    ask(&mut stream, "MULTI\r\n", "+OK\r\n");
    let (count, queued) = (5_000, "+QUEUED\r\n");
    for _ in 0..count / 500 {
        ask(&mut stream, &"COMMAND DOCS\r\n".repeat(500), &queued.repeat(500));
    }
    let before = server.resident_bytes();
    // This exceeds the system's buffers at both ends, so some of the commands have not been executed by
    // then.
    stream.write_all(b"EXEC\r\n").unwrap();
    let mut first = vec![0; 16 << 20];
    stream.read_exact(&mut first).unwrap();
    assert!(first.starts_with(format!("*{count}\r\n*").as_bytes()));
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    let mut honest = connect(&address);
    ask(&mut honest, "PING\r\n", "+PONG\r\n");
}

#[test]
fn hostile_bytes_cost_little() {
    let sandbox = Sandbox::new();
    let (server, address) = Server::start_with_redis(&sandbox);
    let before = server.resident_bytes();
    // Ten megabytes without a line end, announced lengths without bytes, deep nesting, absurd numbers.
    let line = "x".repeat(10 << 20);
    let nested = "*1048576\r\n".repeat(1000);
    let announced = "*1048576\r\n$524288\r\n";
    let absurd = "BF.RESERVE k 0.000001 1073741824\r\n".repeat(50);
    for bytes in [&*line, &*nested, announced, "*-1\r\n*0\r\n\r\n", &*absurd] {
        let mut streams: Vec<_> = (0..8).map(|_| connect(&address)).collect();
        for stream in &mut streams {
            // The connection may be closed before everything is sent.
            let _ = stream.write_all(bytes.as_bytes());
        }
        let mut honest = connect(&address);
        ask(&mut honest, "PING\r\n", "+PONG\r\n");
    }
    let mut honest = connect(&address);
    let refused = "-ERR Insufficient memory to create filter\r\n";
    ask(&mut honest, "BF.RESERVE k 0.000001 1073741824\r\n", refused);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}
