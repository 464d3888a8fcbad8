//! `umbel reconcile --resume`: sessions that are cut, and continue where they stopped.

use crate::model::Draws;
use crate::sandbox::{Ran, Sandbox};
use crate::serve::{run, umbel};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::scope;

/// Most bytes that are sent again after a cut, including overhead.
const AGAIN_BYTES_MAX: u64 = 64_000;

/// Lines that only one side has; they hardly compress.
const ONLY: u64 = 4_000;

fn lines(seed: u64, count: u64) -> String {
    let mut draws = Draws(seed);
    let word = |draws: &mut Draws| format!("{:016x}", draws.below(u64::MAX));
    (0..count)
        .map(|_| [word(&mut draws), word(&mut draws), word(&mut draws)].join("") + "\n")
        .collect()
}

fn two_sets() -> Sandbox {
    let shared = lines(1, 500);
    let (a, b) = (shared.clone() + &lines(2, ONLY), shared + &lines(3, ONLY));
    Sandbox::with(&[("a", a), ("b", b)])
}

fn line_set(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// Asserts that both sets have all lines, each of them once.
#[track_caller]
fn assert_merged(sandbox: &Sandbox) {
    let all: BTreeSet<String> = [1, 2, 3]
        .iter()
        .flat_map(|&seed| line_set(&lines(seed, if seed == 1 { 500 } else { ONLY })))
        .collect();
    for name in ["a", "b"] {
        let text = sandbox.text(name);
        assert_eq!((line_set(&text), text.lines().count()), (all.clone(), all.len()), "{name}");
    }
}

fn report(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&sandbox.read("report.json")).unwrap()
}

fn resumed(sandbox: &Sandbox) -> [u64; 2] {
    let report = report(sandbox);
    ["times", "bytes_again"].map(|name| report["resumed"][name].as_u64().unwrap())
}

/// Names of the journals.
fn journals(sandbox: &Sandbox) -> Vec<String> {
    sandbox.files().into_iter().filter(|name| name.contains("journal")).collect()
}

fn text_of(mut child: Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text
}

/// The answering side at its own address.
struct Answering {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
}

impl Answering {
    fn start(sandbox: &Sandbox) -> Self {
        let args = "reconcile --listen 127.0.0.1:0 --writable --resume kept-journals b";
        let mut child = umbel(sandbox, args).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("umbel: listening on ").unwrap().to_owned();
        Self { child, said, address }
    }

    /// Waits for its message that a session succeeded.
    fn await_end(&mut self) {
        let ends = ["items came", "nothing was left"];
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended");
            if ends.iter().any(|end| line.contains(end)) {
                return;
            }
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that this process relays; on demand it stops, and is held until it is released.
struct Relay {
    address: String,
    passed: Arc<AtomicU64>,
    stopped: Receiver<()>,
    sockets: Receiver<[TcpStream; 2]>,
}

impl Relay {
    #[expect(clippy::disallowed_methods, reason = "it serves a process, not a call")]
    fn to(address: &str, stops_at: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let (address, passed) = (address.to_owned(), Arc::new(AtomicU64::new(0)));
        let ((stop, stopped), (give, sockets)) = (channel(), channel());
        let counted = Arc::clone(&passed);
        std::thread::spawn(move || {
            let (here, _) = listener.accept().unwrap();
            let there = TcpStream::connect(address).unwrap();
            give.send([here.try_clone().unwrap(), there.try_clone().unwrap()]).unwrap();
            scope(|scope| {
                let (stop_back, counted, stops_at) = (stop.clone(), &counted, &stops_at);
                let (from, to) = (&there, &here);
                scope.spawn(move || pass(from, to, stops_at, counted, &stop_back));
                pass(&here, &there, stops_at, counted, &stop);
            });
        });
        Self { address: own, passed, stopped, sockets }
    }

    fn let_go(&self) {
        for socket in self.sockets.try_recv().unwrap() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Relays bytes until it stops after this many in both directions.
fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    stops_at: &(impl Fn(u64) -> bool + Sync),
    passed: &AtomicU64,
    stop: &Sender<()>,
) {
    let mut buffer = [0; 4096];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer) else {
            let _ = to.shutdown(Shutdown::Write);
            return;
        };
        let before = passed.fetch_add(count as u64, Ordering::SeqCst);
        if stops_at(before + count as u64) {
            passed.fetch_sub(count as u64, Ordering::SeqCst);
            let _ = stop.send(());
            return;
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Runs a session over TCP to its end; each time that this many bytes were relayed, the given side is
/// killed. Returns the number of relayed bytes.
fn over_tcp(sandbox: &Sandbox, cuts: &[(bool, u64)]) -> u64 {
    let mut answering = Answering::start(sandbox);
    let mut total = 0;
    for &(is_first, limit) in cuts {
        let relay = Relay::to(&answering.address, move |passed| passed > limit);
        let args = format!("reconcile a tcp://{} --two-way --resume mine.journal", relay.address);
        let mut child = umbel(sandbox, &args).spawn().unwrap();
        relay.stopped.recv().unwrap();
        if is_first {
            child.kill().unwrap();
        } else {
            answering.child.kill().unwrap();
            answering.child.wait().unwrap();
        }
        relay.let_go();
        let said = text_of(child);
        if !is_first {
            assert!(said.contains("run it again to go on"), "{said}");
            answering = Answering::start(sandbox);
        }
        total += relay.passed.load(Ordering::SeqCst);
        assert_eq!(journals(sandbox).len(), 2, "{:?}", sandbox.files());
    }
    let relay = Relay::to(&answering.address, |_| false);
    let args = format!("reconcile a tcp://{} --two-way --resume mine.journal", relay.address);
    run(sandbox, &(args + " --report report.json")).kept();
    answering.await_end();
    total + relay.passed.load(Ordering::SeqCst)
}

#[test]
fn a_session_goes_on_after_either_side_was_killed() {
    let sandbox = two_sets();
    let uncut = over_tcp(&sandbox, &[]);
    assert_merged(&sandbox);
    assert_eq!((resumed(&sandbox), journals(&sandbox)), ([0, 0], vec![]));
    let all = report(&sandbox);
    let bytes = ["bytes_sent", "bytes_received"].map(|name| all[name].as_u64().unwrap());
    assert_eq!(bytes.iter().sum::<u64>(), uncut, "all bytes are counted");
    for cuts in [
        &[(true, uncut / 2)][..],
        &[(false, uncut / 2)],
        &[(false, 300), (true, uncut / 3), (false, uncut / 3), (true, uncut / 5)],
    ] {
        let sandbox = two_sets();
        let passed = over_tcp(&sandbox, cuts);
        assert_merged(&sandbox);
        let most = cuts.len() as u64 * AGAIN_BYTES_MAX;
        assert!(passed <= uncut + most, "{passed} of {uncut}, cut {cuts:?}");
        let [times, again] = resumed(&sandbox);
        assert!(times == cuts.len() as u64 && again <= most, "{times} {again} {cuts:?}");
        assert_eq!(journals(&sandbox), Vec::<String>::new());
    }
}

/// Writes a program `there.sh` that answers, and that is killed after it has sent this many bytes.
fn script(sandbox: &Sandbox, args: &str, kill_after: Option<u64>) {
    let umbel = env!("CARGO_BIN_EXE_umbel");
    let answer = format!("{umbel} reconcile --stdio {args}");
    let text = match kill_after {
        None => format!("#!/bin/sh\nexec {answer}\n"),
        Some(bytes) => format!(
            "#!/bin/sh\nrm -f pid\n(exec sh -c 'echo $$ > pid; exec {answer}') <&0 | \
             (dd bs=1 count={bytes} 2>/dev/null; kill -9 $(cat pid))\n"
        ),
    };
    sandbox.write("there.sh", text);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("there.sh"), mode).unwrap();
}

fn reconcile(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("reconcile {args}"))
}

const THERE: &str = "a exec:./there.sh --two-way --resume mine.journal --report report.json";

#[test]
fn a_killed_command_goes_on() {
    let sandbox = two_sets();
    script(&sandbox, "--writable --resume kept-journals b", Some(100_000));
    reconcile(&sandbox, THERE).refused(2, &["mine.journal: keeps what came", "exec:./there.sh"]);
    assert_eq!(journals(&sandbox).len(), 2);
    script(&sandbox, "--writable --resume kept-journals b", None);
    reconcile(&sandbox, THERE).kept();
    assert_merged(&sandbox);
    let [times, again] = resumed(&sandbox);
    assert!(times == 1 && again <= AGAIN_BYTES_MAX, "{again}");
    assert_eq!(journals(&sandbox), Vec::<String>::new());
}

#[test]
fn a_changed_set_is_a_new_session_over_the_sets_as_they_are() {
    for changed in ["a", "b"] {
        let sandbox = two_sets();
        script(&sandbox, "--writable --resume kept-journals b", Some(100_000));
        reconcile(&sandbox, THERE).refused(2, &["keeps what came"]);
        let text = sandbox.text(changed) + "new\n";
        sandbox.write(changed, text);
        script(&sandbox, "--writable --resume kept-journals b", None);
        let ran = reconcile(&sandbox, THERE);
        assert!(ran.stderr.contains("a new "), "{}", ran.stderr);
        ran.kept();
        assert_eq!(line_set(&sandbox.text("a")), line_set(&sandbox.text("b")));
        assert_eq!(sandbox.text("a").lines().filter(|line| *line == "new").count(), 1);
        assert_eq!(resumed(&sandbox), [0, 0]);
        // The answering side does not learn that the old session will not be resumed.
        assert_eq!(journals(&sandbox).len(), usize::from(changed == "a"));
    }
}

#[test]
fn torn_and_damaged_journals_never_make_a_wrong_result() {
    for damage in 0..6 {
        let sandbox = two_sets();
        script(&sandbox, "--writable --resume kept-journals b", Some(100_000));
        reconcile(&sandbox, THERE).refused(2, &["keeps what came"]);
        let names = journals(&sandbox);
        let name = &names[damage % 2];
        let mut bytes = sandbox.read(name);
        let length = bytes.len();
        match damage / 2 {
            0 => bytes.truncate(length - 7),
            1 => bytes[length / 2] ^= 1,
            _ => bytes[20] ^= 1,
        }
        sandbox.write(name, bytes);
        script(&sandbox, "--writable --resume kept-journals b", None);
        reconcile(&sandbox, THERE).kept();
        assert_merged(&sandbox);
    }
}

#[test]
fn what_was_applied_there_is_not_asked_for_again() {
    let sandbox = two_sets();
    let mut answering = Answering::start(&sandbox);
    let (b, length) = (sandbox.path("b"), sandbox.read("b").len() as u64);
    // The answering side has changed its set, but its message is not delivered.
    let has_applied = move |_| std::fs::metadata(&b).unwrap().len() != length;
    let relay = Relay::to(&answering.address, has_applied);
    let args = format!("reconcile a tcp://{} --two-way --resume mine.journal", relay.address);
    let mut child = umbel(&sandbox, &args).spawn().unwrap();
    relay.stopped.recv().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    relay.let_go();
    answering.await_end();
    assert_eq!(line_set(&sandbox.text("a")).len() as u64, 500 + ONLY);
    let args = format!("a tcp://{} --two-way --resume mine.journal", answering.address);
    reconcile(&sandbox, &(args + " --report report.json")).kept();
    answering.await_end();
    assert_merged(&sandbox);
    let [times, again] = resumed(&sandbox);
    assert!(times == 1 && again <= AGAIN_BYTES_MAX, "{times} {again}");
    assert_eq!(journals(&sandbox), Vec::<String>::new());
}

#[test]
fn a_journal_that_has_everything_needs_nobody() {
    let sandbox = two_sets();
    script(&sandbox, "--writable --resume kept-journals b", None);
    // It cannot write its own set at the end, as on a full disk.
    let text = sandbox.text("there.sh").replace("exec", "ulimit -S -f unlimited; exec");
    sandbox.write("there.sh", text);
    let umbel = env!("CARGO_BIN_EXE_umbel");
    let limited =
        format!("trap '' XFSZ; ulimit -S -f 700; exec {umbel} reconcile {THERE} --idle-timeout 60");
    let output = Command::new("sh").args(["-c", &limited]).current_dir(sandbox.path("")).output();
    sandbox.ended(output.unwrap()).refused(2, &["keeps what came", "a: cannot write"]);
    assert_eq!(journals(&sandbox), ["mine.journal"]);
    reconcile(&sandbox, THERE).kept();
    assert_merged(&sandbox);
    assert_eq!(journals(&sandbox), Vec::<String>::new());
}

#[test]
fn contents_of_directories_go_on_too() {
    let mut draws = Draws(5);
    let mut file =
        || -> Vec<u8> { (0..10_000).flat_map(|_| draws.below(u64::MAX).to_le_bytes()).collect() };
    let files: Vec<(String, Vec<u8>)> =
        (0..10).map(|number| (format!("{}/{number}", ["a", "b"][number % 2]), file())).collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let sandbox = Sandbox::with(&files);
    script(&sandbox, "--dir --writable --resume kept-journals b", Some(250_000));
    let there = format!("--dir {THERE}");
    reconcile(&sandbox, &there).refused(2, &["keeps what came"]);
    script(&sandbox, "--dir --writable --resume kept-journals b", None);
    reconcile(&sandbox, &there).kept();
    for (name, bytes) in files {
        let number = &name[2..];
        for side in ["a", "b"] {
            assert!(sandbox.read(format!("{side}/{number}")) == bytes, "{side}/{number}");
        }
    }
    let [times, again] = resumed(&sandbox);
    assert!(times == 1 && again <= AGAIN_BYTES_MAX, "{times} {again}");
    let total =
        ["bytes_sent", "bytes_received"].map(|name| report(&sandbox)[name].as_u64().unwrap());
    assert!(total.iter().sum::<u64>() > 800_000, "each byte is counted once: {total:?}");
}

#[test]
fn journals_are_asked_of_both_sides_and_had_by_one_process() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n"), ("notes", "mine\n")]);
    script(&sandbox, "b", None);
    reconcile(&sandbox, "a exec:./there.sh --resume mine.journal")
        .refused(2, &["keeps no journals: give it --resume too"]);
    assert!(!sandbox.exists("mine.journal"), "of a session that did not begin");
    reconcile(&sandbox, "a b --resume mine.journal")
        .refused(2, &["--resume is for a session with"]);
    reconcile(&sandbox, "a exec:./there.sh --resume notes").refused(2, &["notes: not a journal"]);
    assert_eq!(sandbox.text("notes"), "mine\n");
    // A side with journals also answers sessions without.
    script(&sandbox, "--resume kept-journals b", None);
    assert_eq!(reconcile(&sandbox, "a exec:./there.sh").ended_with(1), b"- 1\n+ 3\n");
    assert_eq!(reconcile(&sandbox, "a exec:./there.sh --resume j").ended_with(1), b"- 1\n+ 3\n");
    assert!(!sandbox.exists("j"));
    let held = std::fs::File::create(sandbox.path("held.journal")).unwrap();
    held.lock().unwrap();
    reconcile(&sandbox, "a exec:./there.sh --resume held.journal")
        .refused(2, &["another process goes on with this session"]);
}

#[test]
fn ssh_keeps_the_journals_of_the_other_machine_beside_its_set() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n")]);
    let umbel_there = env!("CARGO_BIN_EXE_umbel").strip_suffix("/umbel").unwrap();
    sandbox.write("bin/ssh", "#!/bin/sh\necho \"$4\" > command\nexec sh -c \"$4\"\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("bin/ssh"), mode).unwrap();
    let path = format!("{}:{umbel_there}:/usr/bin:/bin", sandbox.path("bin").display());
    let there = format!("ssh://host{}", sandbox.path("b").display());
    let mut command: Command = umbel(&sandbox, "reconcile a --two-way --resume j");
    let output = command.arg(there).env("PATH", path).stdin(Stdio::null()).output().unwrap();
    sandbox.ended(output).kept();
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("1\n2\n3\n".into(), "2\n3\n1\n".into()));
    let command = sandbox.text("command");
    assert!(command.contains("/b.umbel-resume -- "), "{command}");
}
