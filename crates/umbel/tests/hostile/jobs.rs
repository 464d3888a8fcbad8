//! Jobs that read endless inputs, or write to forbidden places.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bytes::Bytes;
use prost::Message;
use tempfile::TempDir;
use umbel_client::proto::{ListJobsRequest, ListJobsResponse, SubmitJobRequest};

use crate::calls::{Answer, Caller, framed};
use crate::servers::{umbel, until};
use crate::siege::{Bounds, Siege};

const BOUNDS: Bounds = Bounds { memory_mib: 128, descriptors: 24 };

/// A node whose jobs may read and write below a folder.
struct Site {
    siege: Siege,
    root: TempDir,
}

impl Site {
    async fn new() -> Self {
        let root = tempfile::Builder::new().prefix("umbel-hostile-").tempdir().unwrap();
        let text = root.path().display().to_string();
        let siege = Siege::begin_with(|node| {
            node.set("UMBEL_JOB_ROOTS", &text);
            node.set("UMBEL_JOB_MEMORY_BYTES", "67108864");
        })
        .await;
        std::fs::write(root.path().join("good.txt"), "a\nb\na\n").unwrap();
        Self { siege, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs a job with this input and output.
    async fn job(&self, input: &Path, output: &Path) -> Output {
        let mut command = umbel(&["dedup", "--cluster", &self.siege.address()]);
        let on = |path: &Path| format!("1={}", path.display());
        command.args(["--on", &on(input), "--output"]).arg(output);
        ended(command).await
    }

    /// Bytes in the scratch folder of the node's jobs.
    fn scratch_bytes(&self) -> u64 {
        bytes_below(&self.siege.node().data.join("jobs"))
    }
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

async fn ended(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_never_end_are_not_read() {
    let site = Site::new().await;
    let fifo = site.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let links = [("zero", "/dev/zero"), ("out", "/etc"), ("proc", "/proc/self/environ")];
    for (name, target) in links {
        std::os::unix::fs::symlink(target, site.path(name)).unwrap();
    }
    std::os::unix::fs::symlink(site.path("loop"), site.path("loop")).unwrap();
    let inputs = [
        PathBuf::from("/dev/zero"),
        PathBuf::from("/dev/stdin"),
        PathBuf::from("/proc/kmsg"),
        fifo,
        site.path("zero"),
        site.path("out/hosts"),
        site.path("out/*"),
        site.path("proc"),
        site.path("../../../../etc/hosts"),
        PathBuf::from("/etc/passwd"),
    ];
    for input in &inputs {
        let output = site.job(input, &site.path("kept/")).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{}: {said}", input.display());
        assert!(!site.path("kept").join("hosts").exists(), "{}", input.display());
    }
    assert!(site.scratch_bytes() < 1 << 20, "{} bytes aside", site.scratch_bytes());
    site.siege.holds("inputs of jobs", BOUNDS).await;
    let good = site.job(&site.path("good.txt"), &site.path("kept/")).await;
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    assert_eq!(std::fs::read(site.path("kept/good.txt")).unwrap(), b"a\nb\n");
    site.siege.recovers("inputs of jobs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_stay_below_their_roots() {
    let site = Site::new().await;
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), site.path("link")).unwrap();
    let outputs = [
        outside.path().join("kept/"),
        site.path("link/kept/"),
        site.path("link/new/deeper/"),
        site.path("a/../../../../../../tmp/umbel-hostile-escape/"),
        site.path("..").join("umbel-hostile-escape/"),
        PathBuf::from("relative/"),
        PathBuf::from("/"),
        site.path(&"p/".repeat(30_000)),
        site.path(&"../".repeat(1000)),
        site.path(&format!("{}/", "n".repeat(300))),
    ];
    for output in &outputs {
        let ran = site.job(&site.path("good.txt"), output).await;
        let said = String::from_utf8_lossy(&ran.stderr);
        let shown: String = output.display().to_string().chars().take(80).collect();
        assert!(!ran.status.success(), "{shown}: {said}");
        assert!(said.len() < 16 << 10, "{shown}: {} bytes of an error", said.len());
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(!std::env::temp_dir().join("umbel-hostile-escape").exists());
    site.siege.holds("outputs of jobs", BOUNDS).await;
    // A name may contain markup.
    let markup = site.path("<b>&\"'/");
    let ran = site.job(&site.path("good.txt"), &markup).await;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(std::fs::read(markup.join("good.txt")).unwrap(), b"a\nb\n");
    site.siege.recovers("outputs of jobs").await;
}

/// Descriptions of jobs that no command would send.
fn descriptions() -> Vec<(&'static str, Bytes)> {
    let words = |words: &[String]| -> Bytes { serde_json::to_vec(words).unwrap().into() };
    let of = |text: &str| words(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let deep = format!("/{}", "p/".repeat(30_000));
    vec![
        ("nothing", Bytes::new()),
        ("no text", vec![0xff; 1000].into()),
        ("zeros", vec![0; 1 << 20].into()),
        ("lists within lists", "[".repeat(100_000).into()),
        ("no words", of("")),
        ("an output of 30,000 parts", of(&format!("dedup /x --output {deep}"))),
        ("an output of 1,000,000 bytes", of(&format!("/x --output /{}", "a".repeat(1_000_000)))),
        ("another command", of("serve --insecure")),
        ("its own cluster", of("/x --cluster 127.0.0.1:1 --output /y/")),
        ("peers", of("/x --peers 127.0.0.1:1,127.0.0.1:2 --rank 0 --output /y/")),
        ("help", of("--help")),
        ("100,000 inputs", words(&vec!["/x".to_owned(); 100_000])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_that_are_none_enter_no_ledger() {
    let site = Site::new().await;
    let caller = Caller::open(&site.siege.address()).await;
    for (at, (name, spec)) in (1..).zip(descriptions()) {
        for workers in [vec![], vec![1], vec![u64::MAX], vec![1; 10_000]] {
            let request = SubmitJobRequest { nonce: at, spec: spec.clone(), workers, seed: None };
            let answer = caller.call("/umbel.v1.Jobs/SubmitJob", &request).await;
            assert!(!answer.is_success(), "{name}: {answer:?}");
            assert!(matches!(answer, Answer::Status { .. }), "{name}: {answer:?}");
        }
    }
    let list = framed(&ListJobsRequest {}.encode_to_vec());
    let listed = caller.send("/umbel.v1.Jobs/ListJobs", &[], list).await;
    assert_eq!(listed.message::<ListJobsResponse>().jobs, []);
    drop(caller);
    site.siege.holds("descriptions of jobs", BOUNDS).await;
    site.siege.restarts().await.recovers("descriptions of jobs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_roots_takes_no_jobs() {
    let siege = Siege::begin().await;
    let kept = siege.cluster.folder.path().join("kept/");
    for input in ["/dev/zero", "/etc/hosts", "/"] {
        let mut command = umbel(&["dedup", "--cluster", &siege.address(), input, "--output"]);
        command.arg(&kept);
        let ran = ended(command).await;
        assert!(!ran.status.success(), "{input}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    until("nothing was made", || async { (!kept.exists()).then_some(()) }).await;
    siege.holds("jobs of a node without roots", BOUNDS).await;
    siege.recovers("jobs of a node without roots").await;
}
