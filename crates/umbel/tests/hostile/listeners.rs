//! Commands that listen for other commands: `umbel dedup --peers`, `umbel reconcile --listen`.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use umbel_ports::testing::free_port;

use crate::calls::{Caller, framed};
use crate::frames::{PREFACE, connect, settings};
use crate::servers::{umbel, until};
use crate::siege::peak_mib;

/// Most memory of a command with a few lines of input while strangers connect to it.
const MEMORY_MIB_MAX: u64 = 256;

/// Bytes that strangers send to a listener.
fn sayings() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        // The first byte of a session.
        vec![0xa8],
        b"GET / HTTP/1.1\r\nhost: n\r\n\r\n".to_vec(),
        PREFACE[..12].to_vec(),
        [PREFACE, &settings()].concat(),
        vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        vec![0xff; 100_000],
        vec![0; 100_000],
    ]
}

/// Strangers that keep their connections open.
async fn strangers(address: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for saying in sayings() {
        let mut stream = connect(address).await;
        // The listener may hang up in the middle.
        let _ = stream.write_all(&saying).await;
        held.push(stream);
    }
    held
}

/// A command that runs in a folder.
fn within(folder: &Path, args: &str) -> Command {
    let mut command = umbel(&args.split(' ').collect::<Vec<_>>());
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is killed when the test ends.
struct Running(Option<Child>);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    async fn ended(mut self) -> Output {
        let child = self.0.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder with the inputs of two workers.
fn job_folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("umbel-hostile-").tempdir().unwrap();
    std::fs::write(folder.path().join("in0"), "a\nb\n").unwrap();
    std::fs::write(folder.path().join("in1"), "b\nc\n").unwrap();
    folder
}

fn worker(folder: &Path, rank: usize, peers: &str, (secret, patience): (&str, &str)) -> Running {
    let args = format!(
        "dedup in{rank} --rank {rank} --peers {peers} --job-dir job{rank}-{} --output out{rank} --seed 7 --memory 64M \
         --worker-timeout {patience} -q",
        &secret[..1],
    );
    let mut command = within(folder, &args);
    command.env("UMBEL_JOB_TOKEN", secret);
    Running::start(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_end_a_job_of_peers() {
    let folder = job_folder();
    let (here, secret) = (folder.path(), "0123456789abcdef0123456789abcdef");
    let addresses = [0, 1].map(|_| format!("127.0.0.1:{}", free_port()));
    let peers = addresses.join(",");
    let first = worker(here, 0, &peers, (secret, "2m"));
    until("worker 0 listens", || async { TcpStream::connect(&addresses[0]).await.ok() }).await;
    let held = strangers(&addresses[0]).await;
    // Calls of a worker with another secret, and with none.
    if let Ok(caller) = Caller::try_over(connect(&addresses[0]).await).await {
        for path in ["/umbel.v1.JobControl/Control", "/umbel.v1.JobExchange/Frames"] {
            for hello in ["", "AAAA", "CAERAAAAAAAAAAA="] {
                let answer = caller.send(path, &[("umbel-job-bin", hello)], framed(&[])).await;
                assert!(!answer.is_success(), "{path}: {answer:?}");
            }
        }
    }
    let wrong = worker(here, 1, &peers, ("ffffffffffffffffffffffffffffffff", "3s"));
    let output = wrong.ended().await;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!here.join("out1").exists());
    let second = worker(here, 1, &peers, (secret, "2m"));
    let pid = first.pid();
    assert!(peak_mib(pid) <= MEMORY_MIB_MAX, "{} MiB", peak_mib(pid));
    // The worker that fails first gives the reason.
    for output in [second.ended().await, first.ended().await] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    drop(held);
    let kept = [0, 1].map(|rank| std::fs::read_to_string(here.join(format!("out{rank}"))).unwrap());
    assert_eq!(kept, ["a\nb\n", "c\n"]);
}

/// A listener with the set `b`, and its address.
fn listening(folder: &Path, options: &str) -> (Running, String) {
    let command = format!("reconcile --listen 127.0.0.1:0 b{options}");
    let mut server = Running::start(within(folder, &command));
    let stderr = server.0.as_mut().unwrap().stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines();
    let said = lines.next().unwrap().unwrap();
    let address = said.strip_prefix("umbel: listening on ").unwrap_or_else(|| panic!("{said}"));
    let address = address.to_owned();
    // Its later output must be read.
    tokio::task::spawn_blocking(move || lines.for_each(drop));
    (server, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_that_hang_up_do_not_end_who_listens() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "1\n2\n").unwrap();
    std::fs::write(folder.path().join("b"), "2\n3\n").unwrap();
    let (server, address) = listening(folder.path(), "");
    for _ in 0..3 {
        drop(strangers(&address).await);
    }
    let ask = Running::start(within(folder.path(), &format!("reconcile a tcp://{address}")));
    let output = ask.ended().await;
    assert_eq!(output.stdout, b"- 1\n+ 3\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(peak_mib(server.pid()) <= MEMORY_MIB_MAX, "{} MiB", peak_mib(server.pid()));
}

/// A client is served while strangers keep connections open, whether it has to know a secret or not.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_that_stay_do_not_keep_others_from_who_listens() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "1\n2\n").unwrap();
    std::fs::write(folder.path().join("b"), "2\n3\n").unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    for secret in [" --secret-file secret", ""] {
        let (server, address) = listening(folder.path(), secret);
        let held = strangers(&address).await;
        let ask = format!("reconcile a tcp://{address}{secret}");
        let mut ask = Running::start(within(folder.path(), &ask));
        let child = std::sync::Mutex::new(ask.0.take().unwrap());
        until("an honest session among strangers", || async {
            child.lock().unwrap().try_wait().unwrap()
        })
        .await;
        let output = child.into_inner().unwrap().wait_with_output().unwrap();
        assert_eq!(output.stdout, b"- 1\n+ 3\n", "{}", String::from_utf8_lossy(&output.stderr));
        assert!(peak_mib(server.pid()) <= MEMORY_MIB_MAX, "{} MiB", peak_mib(server.pid()));
        drop(held);
    }
}
