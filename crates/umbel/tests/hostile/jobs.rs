//! Jobs that read endless inputs, or write to forbidden places.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bytes::Bytes;
use prost::Message;
use tempfile::TempDir;
use umbel_client::proto::{
    DedupOwnInput, DedupSpec, Job, ListJobsRequest, ListJobsResponse, SubmitJobRequest,
};

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

/// A description of a job, and a part of the error with which a node refuses it.
type Refused = (&'static str, Bytes, &'static str);

/// A description of a job as the commands of earlier builds send it.
fn words(words: &[String]) -> Bytes {
    let release = env!("CARGO_PKG_VERSION");
    serde_json::json!({ "release": release, "words": words }).to_string().into()
}

fn words_of(text: &str) -> Bytes {
    words(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

/// Descriptions of jobs that no command would send.
fn descriptions(root: &str) -> Vec<Refused> {
    let of = |text: &str| words_of(&format!("{text} --output {root}/kept/"));
    let many = |count| {
        let output = ["--output".to_owned(), format!("{root}/kept/")];
        words(&[vec!["/x".to_owned(); count], output.to_vec()].concat())
    };
    let deep = format!("{root}/{}", "p/".repeat(30_000));
    vec![
        ("nothing", Bytes::new(), "inputs: expected at least one"),
        ("no text", vec![0xff; 1000].into(), "no message of a job"),
        ("zeros", vec![0; 1 << 20].into(), "at most 262144 are allowed"),
        ("lists within lists", "[".repeat(100_000).into(), "no message of a job"),
        ("no words", of(""), "inputs: expected absolute paths"),
        (
            "an output of 30,000 parts",
            words_of(&format!("/x --output {deep}")),
            "output: a path of 60",
        ),
        (
            "an output of 1,000,000 bytes",
            words_of(&format!("/x --output {root}/{}", "a".repeat(1_000_000))),
            "at most 262144 are allowed",
        ),
        ("outside of the roots", words_of("/x --output /y/"), "output: /y/: may not be written"),
        ("another command", of("serve --insecure"), "words of a job of release"),
        ("its own workers", of("/x --workers 2"), "--workers: a cluster has"),
        ("peers", of("/x --peers 127.0.0.1:1,127.0.0.1:2 --rank 0"), "--rank: nodes are"),
        ("help", of("--help"), "words of a job of release"),
        ("20,000 inputs", many(20_000), "inputs: expected at most"),
        ("100,000 inputs", many(100_000), "at most 262144 are allowed"),
        ("a list of words", b"[\"/x\", \"--output\", \"/y/\"]"[..].into(), "no message of a job"),
    ]
}

/// The message of a job that this node runs, if the output is below its roots.
fn below(root: &str, output: &str) -> DedupSpec {
    DedupSpec {
        inputs: vec![format!("{root}/good.txt")],
        binary: 1,
        granularity: 1,
        scope: 1,
        missing_key: 1,
        empty: 1,
        exactness: 2,
        keep: 1,
        output: Some(output.to_owned()),
        filter: 1,
        ..DedupSpec::default()
    }
}

/// What is wrong, how a message becomes so, and what the refusal says.
type Wrong = (&'static str, fn(&mut DedupSpec), &'static str);

/// Changes of a job that this node runs, for which it refuses the job.
const CHANGES: &[Wrong] = &[
    (
        "outside of the roots",
        |spec| spec.output = Some("/y/".to_owned()),
        "output: /y/: may not be written",
    ),
    (
        "a deep output",
        |spec| spec.output = Some("/p".repeat(30_000)),
        "output: a path of 60000 bytes",
    ),
    ("no output", |spec| spec.output = None, "output: expected a file"),
    ("an unknown keep rule", |spec| spec.keep = i32::MAX, "keep: expected"),
    (
        "10,000 keys",
        |spec| (spec.granularity, spec.keys) = (2, vec!["k".to_owned(); 10_000]),
        "keys: expected at most",
    ),
    (
        "100,000 empty inputs",
        |spec| spec.inputs = vec![String::new(); 100_000],
        "inputs: expected at most",
    ),
    ("a relative input", |spec| spec.inputs.push("x".to_owned()), "inputs: expected absolute"),
    ("standard input", |spec| spec.inputs.push("-".to_owned()), "inputs: expected absolute"),
    ("an object", |spec| spec.inputs.push("s3://b/k".to_owned()), "inputs: expected absolute"),
    (
        "a relative input of another node",
        |spec| spec.own_inputs = vec![DedupOwnInput { node: 99, input: "x".to_owned() }],
        "own_inputs: expected absolute",
    ),
    (
        "100,000 nodes of their own",
        |spec| spec.own_inputs = vec![DedupOwnInput::default(); 100_000],
        "own_inputs: expected at most",
    ),
    (
        "a rate that is no number",
        |spec| (spec.exactness, spec.false_positive_rate) = (1, f64::NAN),
        "false_positive_rate: expected",
    ),
    ("a delimiter that is no byte", |spec| spec.delimiter = Some(u32::MAX), "delimiter: expected"),
    (
        "a reference outside of the roots",
        |spec| spec.references = vec!["/etc/passwd".to_owned()],
        "references: /etc/passwd: may not be read",
    ),
    ("a seed that is not given", |spec| spec.names_seed = true, "names_seed: expected"),
];

/// Messages of jobs that no command would send.
fn messages(root: &str) -> Vec<Refused> {
    let base = || below(root, &format!("{root}/kept/"));
    let changed = CHANGES.iter().map(|(name, change, expected)| {
        let mut spec = base();
        change(&mut spec);
        (*name, spec.encode_to_vec().into(), *expected)
    });
    // Field 36, a number.
    let later = [base().encode_to_vec(), vec![0xa0, 2, 1]].concat().into();
    changed.chain([("a field of a later release", later, "does not know")]).collect()
}

async fn jobs_of(caller: &Caller) -> Vec<Job> {
    let list = framed(&ListJobsRequest {}.encode_to_vec());
    let listed = caller.send("/umbel.v1.Jobs/ListJobs", &[], list).await;
    listed.message::<ListJobsResponse>().jobs
}

async fn submitted(caller: &Caller, nonce: u64, spec: &Bytes, workers: Vec<u64>) -> Answer {
    let request = SubmitJobRequest { nonce, spec: spec.clone(), workers, seed: None };
    caller.call("/umbel.v1.Jobs/SubmitJob", &request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_that_are_none_enter_no_ledger() {
    let site = Site::new().await;
    let root = site.root.path().display().to_string();
    let caller = Caller::open(&site.siege.address()).await;
    let refused = descriptions(&root).into_iter().chain(messages(&root));
    for (nonce, (name, spec, expected)) in (1..).zip(refused) {
        for workers in [vec![], vec![1], vec![u64::MAX], vec![1; 10_000]] {
            let answer = submitted(&caller, nonce, &spec, workers).await;
            assert!(!answer.is_success(), "{name}: {answer:?}");
            let Answer::Status { message, .. } = &answer else { panic!("{name}: {answer:?}") };
            let message = message.replace("%20", " ");
            assert!(message.contains(expected), "{name}: {expected}: {message}");
        }
    }
    assert_eq!(jobs_of(&caller).await, []);
    site.siege.holds("descriptions of jobs", BOUNDS).await;
    // Without the changes the same jobs are run, so each was refused for its change.
    let output = |name: &str| format!("{root}/{name}/");
    let message = below(&root, &output("kept")).encode_to_vec().into();
    // The cluster that the words name is of no meaning to a node.
    let named = format!("{root}/good.txt --cluster 127.0.0.1:1 --output {}", output("words"));
    for (nonce, spec) in (1000..).zip([message, words_of(&named)]) {
        let answer = submitted(&caller, nonce, &spec, Vec::new()).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    until("both jobs are done", || async {
        let jobs = jobs_of(&caller).await;
        (jobs.len() == 2 && jobs.iter().all(|job| job.state == "done")).then_some(())
    })
    .await;
    for name in ["kept", "words"] {
        assert_eq!(std::fs::read(site.path(name).join("good.txt")).unwrap(), b"a\nb\n");
    }
    drop(caller);
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
