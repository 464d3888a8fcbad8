//! Clusters that are founded by hand: what founders say while they wait for each other.

use crate::sandbox::Sandbox;
use crate::serve::{run, umbel};
use std::io::{BufRead as _, BufReader};
use std::process::Child;

/// Kills and reaps a process at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_whose_cluster_is_not_formed_is_told_from_none_at_once() {
    let sandbox = Sandbox::with(&[("a", "x\n")]);
    let own = format!("127.0.0.1:{}", umbel_ports::testing::free_port());
    // Nothing listens at the other founder's address.
    let args = format!("serve --listen {own} --data node --initial-cluster {own},127.0.0.1:1");
    let mut server = Killed(umbel(&sandbox, &args).spawn().unwrap());
    let log = BufReader::new(server.0.stderr.take().unwrap());
    let waits = |line: &String| line.contains("the founder 127.0.0.1:1 does not answer");
    assert!(log.lines().map_while(Result::ok).any(|line| waits(&line)), "the server ended");
    let words = format!(
        "umbel: waits for {own}: this node does not belong to a formed cluster yet: the founder 127.0.0.1:1 does \
         not answer this node: start it, or see this node's log; its log says more: "
    );
    // A health check waits for nothing.
    let ready = run(&sandbox, &format!("cluster status --ready --cluster {own}"));
    let said = String::from_utf8(ready.ended_with(1)).unwrap();
    assert!(said.contains("the founder 127.0.0.1:1 does not answer"), "{said}");
    for args in ["cluster status", "cluster top --once", "dedup a --output kept"] {
        let asked = umbel(&sandbox, &format!("{args} --cluster {own}")).spawn().unwrap();
        let mut asked = Killed(asked);
        let mut line = String::new();
        BufReader::new(asked.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let says = line.starts_with(&words) && line.contains("--initial-cluster");
        assert!(says, "{args}: {line}");
    }
}

#[test]
fn founders_with_different_lists_both_say_how_they_differ_and_found_once_that_is_corrected() {
    let sandbox = Sandbox::new();
    let mut addresses =
        [(); 2].map(|()| format!("127.0.0.1:{}", umbel_ports::testing::free_port()));
    addresses.sort_unstable();
    let [first, second] = &addresses;
    let list = format!("{first},{second}");
    let serve = |own: &str, data: &str, list: &str| {
        let args = format!("serve --listen {own} --data {data} --initial-cluster {list}");
        Killed(umbel(&sandbox, &args).spawn().unwrap())
    };
    let mut right = serve(first, "n1", &list);
    let mut wrong = serve(second, "n2", &format!("{list},localhost:9"));
    let difference = format!("{second} alone names localhost:9");
    let logs = [&mut right, &mut wrong].map(|server| {
        let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines();
        let is_told = |line: String| line.contains(&difference);
        assert!(log.by_ref().map_while(Result::ok).any(is_told), "the server ended without a word");
        log
    });
    drop(wrong);
    let _corrected = serve(second, "n2", &list);
    run(&sandbox, &format!("cluster status --cluster {first}")).kept();
    // What they log meanwhile must find a reader.
    drop(logs);
}
