//! `umbel filter import --from` and `export --to` between two nodes, and with servers that have no
//! filters.

use crate::sandbox::Sandbox;
use crate::serve::Server;
use std::io::{Read, Write};
use std::net::TcpListener;

/// A server that sends one text to every client, and then waits until the client disconnects.
#[expect(clippy::disallowed_methods, reason = "it ends with the test")]
fn said(text: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(text);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

/// This matches RedisBloom: of 100 items added to a filter for 10 items at 1 %, one is a false positive,
/// in four links.
#[test]
fn a_filter_goes_from_one_server_to_another_and_back() {
    let (here, there) = (Sandbox::new(), Sandbox::new());
    let (theirs, redis) = Server::start_with_redis(&there);
    let ours = Server::start(&here);
    let items: String = (0..100).map(|item| format!("{item}\n")).collect();
    here.write("items", &items);
    there.write("items", &items);
    let their = |args: &str| theirs.run(&there, &format!("filter {args}"));
    let our = |args: &str| ours.run(&here, &format!("filter {args}"));
    let made = their("create users --kind redisbloom --capacity 10").kept_text();
    assert!(
        made.contains("kind\tredisbloom\n") && made.contains("hashing\tredisbloom\n"),
        "{made}"
    );
    their("create users2 --kind redisbloom --capacity 10 --public-hash")
        .refused(2, &["--public-hash"]);
    assert_eq!(
        their("insert users --file items").kept_text(),
        "new\t99\npresent\t1\nlevel\tmajority\n"
    );

    let imported = our(&format!("import copy --from redis://{redis}/users")).kept_text();
    assert!(imported.contains("kind\tredisbloom\n"), "{imported}");
    let counted = "present\t100\nabsent\t0\nlevel\tlinearizable\n";
    assert_eq!(our("contains copy --file items --count").kept_text(), counted);
    assert!(our("info copy").kept_text().contains("answered new\t99\n"));
    our(&format!("import copy --from redis://{redis}/users")).refused(1, &["copy"]);
    // The copy grows further on the other node, and is copied back.
    our("insert copy a b c").kept();
    let exported = our(&format!("export copy --to redis://{redis}/3/back")).kept_text();
    assert!(
        exported.starts_with("to\tredis://") && exported.ends_with("bytes\t280\n"),
        "{exported}"
    );
    assert_eq!(
        their("contains db3:back a b c 7 --count").kept_text(),
        "present\t4\nabsent\t0\nlevel\tlinearizable\n"
    );
    assert_eq!(their("list").kept_text().lines().count(), 2, "nothing is left beside");
    our(&format!("export copy --to redis://{redis}/3/back"))
        .refused(1, &["key \"back\"", "already"]);

    // Files and backups contain such copies as those of other kinds.
    our("export copy --out f").kept();
    our("import again --file f").kept();
    assert_eq!(our("contains again --file items --count").kept_text(), counted);
}

#[test]
fn what_breaks_off_leaves_nothing_and_names_server_and_key() {
    let sandbox = Sandbox::new();
    let (server, redis) = Server::start_with_redis(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let import = |from: &str| run(&format!("import copy --from {from}"));
    for bad in ["redis://h", "rediss://h", "http://h/k", "redis://u@h/k"] {
        import(bad).refused(2, &["--from"]);
    }
    run("import copy").refused(2, &["--from"]);
    run("import copy --file f --from redis://h/k").refused(2, &["--file"]);
    run("export copy --out f --to redis://h/k").refused(2, &["--to"]);
    import("redis://127.0.0.1:1/k")
        .refused(1, &["redis://127.0.0.1:1, key \"k\"", "cannot be reached"]);
    let nothing = format!("redis://{redis}/k");
    import(&nothing)
        .refused(1, &[&format!("redis://{redis}, key \"k\""), "BF.SCANDUMP: ERR not found"]);
    run("create plain --capacity 100").kept();
    import(&format!("redis://{redis}/plain"))
        .refused(1, &["key \"plain\"", "not in RedisBloom's form"]);
    run(&format!("export plain --to redis://{redis}/copy"))
        .refused(1, &["the filter is blocked, and filters of --kind redisbloom alone"]);
    import(&format!("redis://u:wrong@{redis}/plain")).refused(1, &["AUTH: "]);
    // A password that is not on the command line.
    let mut command =
        server.command(&sandbox, &format!("filter import copy --from redis://{redis}/plain"));
    let output = command.env("REDISCLI_AUTH", "wrong").output().unwrap();
    sandbox.ended(output).refused(1, &["AUTH: "]);
    // An empty variable is none, as everywhere.
    let output = command.env("REDISCLI_AUTH", "").output().unwrap();
    sandbox.ended(output).refused(1, &["not in RedisBloom's form"]);
    // Servers with another protocol, or that send a dump's header and nothing else.
    for (answer, said_of_it) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "not the Redis protocol"),
        (b"+PONG\r\n", "not expected"),
        (b"*2\r\n:1\r\n$3\r\nabc\r\n", "not in RedisBloom's form"),
        (b"*2\r\n:0\r\n$0\r\n\r\n", "no header came"),
        (b"-NOAUTH Authentication required.\r\n", "NOAUTH"),
        (b"-ERR a\x1b[2Jb\r\n", "ERR a?[2Jb"),
        (b"-ERR unknown command 'BF.SCANDUMP'\r\n", "it has no RedisBloom; the items of sets"),
    ] {
        let address = said(answer);
        import(&format!("redis://{address}/k")).refused(1, &[&address, "key \"k\"", said_of_it]);
    }
    let header = "0100000000000000010000000500000002000000\
                  9000000000000000800400000000000001000000000000007b14ae47e17a743fe9862fb2350e2640\
                  08000000640000000000000000";
    let digit = |at: usize| u8::from_str_radix(&header[at..at + 2], 16).unwrap();
    let header: Vec<u8> = (0..header.len()).step_by(2).map(digit).collect();
    // A dump that ends after its header, and one that repeats an empty piece.
    for (behind, said_of_it) in [
        (&b"\r\n*2\r\n:0\r\n$0\r\n\r\n"[..], "the dump ends early"),
        (b"\r\n*2\r\n:1\r\n$0\r\n\r\n", "the dump does not go on"),
    ] {
        let once = [b"*2\r\n:1\r\n$73\r\n", &header[..], behind].concat();
        let address = said(once.leak());
        import(&format!("redis://{address}/k")).refused(1, &[&address, said_of_it]);
    }
    assert_eq!(run("list").kept_text().lines().count(), 1);
}
