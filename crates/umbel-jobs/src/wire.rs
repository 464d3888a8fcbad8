//! Authentication between workers, and the encoding of words and orders.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};
use umbel_dedup_engine::{Grid, Route, WorkerId};
use umbel_engine::NodeId;
use umbel_filter::Hex;
use umbel_ports::encoding::encode;
use umbel_ports::{NotProved, PeerIdentity};
use umbel_proto::v1::{JobHello, JobOption, JobOptions};
use umbel_proto::{detail_of, details_of};

use super::limits::BODY_BYTES_MAX;

/// Version of the protocol between workers. Other versions are refused.
const PROTOCOL: u32 = 5;

/// Name of the metadata that contains the [`JobHello`].
const HELLO: &str = "umbel-job-bin";

/// Context for deriving the keys of proofs.
const PROOF_CONTEXT: &str = "umbel 2026-11-25 hello of a worker";

/// Whose frames a stream between neighbours carries. On a grid there are both kinds. Frames that were
/// passed on end at their receiver, so that stream always drains, and waiting for room in it cannot
/// form a cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Carries {
    /// The sender's own frames, for the receiver and for workers behind it.
    Own,
    /// Other workers' frames, all for the receiver.
    PassedOn,
}

/// Name and digest of an option that all workers of a job must be given alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionDigest {
    /// The option as users write it, like `--key`.
    pub name: &'static str,
    /// Hash of the option's value.
    pub digest: u32,
}

/// The key that proves hellos of a job. Its `Debug` output hides it.
#[derive(Clone)]
pub(super) struct ProofKey([u8; 32]);

impl ProofKey {
    /// Derives the key from a job's secret.
    pub(super) fn of(secret: &[u8]) -> Self {
        Self(blake3::derive_key(PROOF_CONTEXT, secret))
    }

    /// Proves that the sender of a hello knows the secret. The secret itself is never sent, and a proof
    /// is valid only for its hello.
    fn proof(&self, hello: &JobHello) -> blake3::Hash {
        let unproved = JobHello { proof: Bytes::new(), ..hello.clone() };
        blake3::keyed_hash(&self.0, &unproved.encode_to_vec())
    }

    /// Whether the hello's proof was made with this key; compares in constant time.
    fn is_proved(&self, hello: &JobHello) -> bool {
        blake3::Hash::from_slice(&hello.proof).is_ok_and(|proof| proof == self.proof(hello))
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

/// The identity of a worker.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) job: u64,
    pub(super) spec_digest: [u8; 16],
    /// The options that the digest covers; empty if none were given.
    pub(super) options: Vec<OptionDigest>,
    pub(super) worker: WorkerId,
    pub(super) workers: u32,
    /// The nodes on which the workers run, in their order; empty if they run on none.
    pub(super) nodes: Vec<NodeId>,
    /// How frames travel. The same at all workers: a worker with another route refuses the streams.
    pub(super) route: Route,
    pub(super) key: ProofKey,
    /// Drawn at every start.
    pub(super) incarnation: u64,
}

impl Identity {
    /// Which workers have a stream of frames to each other.
    pub(super) fn grid(&self) -> Grid {
        Grid::new(self.workers, self.route)
    }

    /// A call to a worker. `attempt` and `carries` apply to streams of frames.
    pub(super) fn request<T>(
        &self,
        message: T,
        to: WorkerId,
        attempt: u32,
        carries: Carries,
    ) -> Request<T> {
        let mut hello = JobHello {
            protocol: PROTOCOL,
            job: self.job,
            spec_digest: self.spec_digest.to_vec().into(),
            worker: self.worker.0.into(),
            to: to.0.into(),
            workers: self.workers,
            incarnation: self.incarnation,
            attempt,
            passed_on: carries == Carries::PassedOn,
            proof: Bytes::new(),
        };
        hello.proof = Bytes::copy_from_slice(self.key.proof(&hello).as_bytes());
        let mut request = Request::new(message);
        let hello = MetadataValue::from_bytes(&hello.encode_to_vec());
        request.metadata_mut().insert_bin(HELLO, hello);
        request
    }

    /// Checks that the caller means this worker of this job, and may call it; uses the identity that
    /// its connection proves, if known.
    pub(super) fn check(
        &self,
        hello: &JobHello,
        connection: Option<&PeerIdentity>,
    ) -> Result<WorkerId, Status> {
        let job = self.job;
        if !self.key.is_proved(hello) {
            return Err(Status::unauthenticated(format!(
                "worker {} does not know the secret of job {job:016x}: give all workers one secret",
                hello.worker
            )));
        }
        let refused = |text: String| Err(Status::failed_precondition(text));
        if self.spec_digest[..] != hello.spec_digest[..] {
            return Err(self.refuse_spec(hello));
        }
        if self.workers != hello.workers {
            return refused(format!(
                "worker {} counts {} workers, worker {} counts {}: give all workers one list of peers",
                hello.worker, hello.workers, self.worker.0, self.workers
            ));
        }
        if u32::from(self.worker.0) != hello.to {
            return refused(format!(
                "worker {} is here, worker {} called worker {}: give all workers one list of peers",
                self.worker.0, hello.worker, hello.to
            ));
        }
        match u16::try_from(hello.worker) {
            Ok(worker) if hello.worker < self.workers => {
                self.check_node(WorkerId(worker), connection)?;
                Ok(WorkerId(worker))
            }
            _ => refused(format!(
                "a worker {} of job {job:016x}, which has {} workers",
                hello.worker, self.workers
            )),
        }
    }

    /// All nodes know the secrets of all jobs. So a caller whose certificate names a node may speak
    /// only for the worker on that node.
    fn check_node(
        &self,
        worker: WorkerId,
        connection: Option<&PeerIdentity>,
    ) -> Result<(), Status> {
        let (Some(node), Some(PeerIdentity::Member(shown))) =
            (self.nodes.get(worker.index()), connection)
        else {
            return Ok(());
        };
        if shown.node == node.0 {
            return Ok(());
        }
        Err(Status::unauthenticated(format!(
            "worker {} of job {:016x} is on {node}, the caller's certificate is for {}",
            worker.0,
            self.job,
            NodeId(shown.node)
        )))
    }

    /// The refusal of a worker with another specification of the job; contains this worker's options.
    fn refuse_spec(&self, hello: &JobHello) -> Status {
        // A stranger's may be of any length.
        let theirs = hello.spec_digest.get(..16).unwrap_or(&hello.spec_digest);
        let text = format!(
            "worker {} was told another job: its options have the digest {}, those of worker {} {}; \
             give all workers the same options",
            hello.worker,
            Hex(theirs),
            self.worker.0,
            Hex(&self.spec_digest)
        );
        let options = self
            .options
            .iter()
            .map(|option| JobOption { name: option.name.to_owned(), digest: option.digest });
        let options = JobOptions { options: options.collect() };
        let code = Code::FailedPrecondition;
        let details = details_of(code, &text, &options);
        Status::with_details(code, text, details)
    }

    /// The text of a call's status with its causes; names the options that differ from those of the
    /// refusing worker.
    pub(super) fn status_text(&self, status: &Status) -> String {
        let text = status_text(status);
        if status.code() != Code::FailedPrecondition {
            return text;
        }
        let theirs = detail_of::<JobOptions>(status).unwrap_or_default().options;
        let differs = |ours: &&OptionDigest| {
            theirs.iter().any(|their| their.name == ours.name && their.digest != ours.digest)
        };
        let names: Vec<&str> = self.options.iter().filter(differs).map(|ours| ours.name).collect();
        if names.is_empty() { text } else { format!("{text}; what differs: {}", names.join(", ")) }
    }
}

/// Decodes the hello of a call, which must have this version of the protocol.
pub(super) fn hello_of(metadata: &MetadataMap) -> Result<JobHello, Status> {
    let invalid = |what: &str| Status::invalid_argument(format!("{HELLO} {what}"));
    let value = metadata.get_bin(HELLO).ok_or_else(|| invalid("is missing"))?;
    let bytes = value.to_bytes().map_err(|_| invalid("is not base64"))?;
    let hello =
        JobHello::decode(bytes).map_err(|error| invalid(&format!("is no hello: {error}")))?;
    if hello.protocol != PROTOCOL {
        return Err(Status::failed_precondition(format!(
            "job protocol {PROTOCOL} is spoken here, worker {} speaks {}: bring all workers to one \
             release",
            hello.worker, hello.protocol
        )));
    }
    Ok(hello)
}

/// Whether a retry is of no use before an operator has done something.
pub(super) fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::FailedPrecondition
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::Unimplemented
    )
}

/// Whether the called process does not know the job's secret.
pub(super) fn is_stranger(status: &Status) -> bool {
    NotProved::is_final(status)
}

/// The message of a status, with its causes.
pub(super) fn status_text(status: &Status) -> String {
    error_text(status.message().to_owned(), std::error::Error::source(status))
}

/// A message with its chain of causes, each told once.
pub(super) fn error_text(
    text: String,
    mut source: Option<&(dyn std::error::Error + 'static)>,
) -> String {
    let mut told = vec![text];
    while let Some(error) = source {
        // A status shows all of its fields, and its cause once more.
        let status = error.downcast_ref::<Status>();
        let cause = status.map_or_else(|| error.to_string(), |status| status.message().to_owned());
        // What is told again is told where its own cause follows.
        told.retain(|before| *before != cause);
        if !told.iter().any(|before| before.contains(&cause)) {
            told.push(cause);
        }
        source = error.source();
    }
    told.join(": ")
}

/// Encodes a word or an order; an error with its length if it is too long.
pub(super) fn encode_body<T: Serialize>(body: &T) -> Result<Bytes, usize> {
    let bytes = encode(body);
    if bytes.len() > BODY_BYTES_MAX { Err(bytes.len()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use umbel_ports::NodeIdentity;

    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let reset = || std::io::Error::other("peer closed connection");
        let mut inner = Status::unknown("h2 protocol error: error reading a body");
        inner.set_source(std::sync::Arc::new(reset()));
        let mut status = Status::unknown("h2 protocol error: error reading a body");
        status.set_source(std::sync::Arc::new(inner));
        assert_eq!(
            status_text(&status),
            "h2 protocol error: error reading a body: peer closed connection"
        );
    }

    fn identity() -> Identity {
        let (job, spec_digest, key) = (7, [3; 16], ProofKey::of(b"secret"));
        let (worker, route) = (WorkerId(0), Route::Direct);
        let digest = |name, digest| OptionDigest { name, digest };
        let options = vec![digest("--key", 1), digest("--keep", 2), digest("--scope", 3)];
        let (workers, nodes, incarnation) = (4, [2, 3, 5, 8].map(NodeId).to_vec(), 1);
        Identity { job, spec_digest, options, worker, workers, nodes, route, key, incarnation }
    }

    fn refusal(change: impl Fn(&mut JobHello)) -> Status {
        let other = Identity { worker: WorkerId(2), ..identity() };
        let request = other.request((), WorkerId(0), 0, Carries::Own);
        let mut hello = hello_of(request.metadata()).unwrap();
        assert_eq!(identity().check(&hello, None).unwrap(), WorkerId(2));
        change(&mut hello);
        hello.proof = Bytes::copy_from_slice(other.key.proof(&hello).as_bytes());
        identity().check(&hello, None).unwrap_err()
    }

    #[test]
    fn refusals_name_both_values() {
        let status = refusal(|hello| hello.spec_digest = vec![4; 16].into());
        assert!(status.message().contains("0404") && status.message().contains("0303"), "{status}");
        let status = refusal(|hello| hello.workers = 9);
        assert!(status.message().contains("counts 9 workers, worker 0 counts 4"), "{status}");
        let status = refusal(|hello| hello.to = 3);
        assert!(
            status.message().contains("worker 0 is here, worker 2 called worker 3"),
            "{status}"
        );
        let status = refusal(|hello| hello.worker = 70_000);
        assert!(status.message().contains("a worker 70000 of job"), "{status}");
        assert!(is_final(&status));
    }

    #[test]
    fn a_node_speaks_for_its_own_worker_alone() {
        let other = Identity { worker: WorkerId(2), ..identity() };
        let hello = other.request((), WorkerId(0), 0, Carries::Own);
        let hello = hello_of(hello.metadata()).unwrap();
        let member = |node| PeerIdentity::Member(NodeIdentity { cluster: 1, node });
        let check = |connection: &PeerIdentity| identity().check(&hello, Some(connection));
        assert_eq!(check(&member(5)).unwrap(), WorkerId(2));
        for node in [2, 3, 8, 9] {
            let status = check(&member(node)).unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated, "{status}");
            assert!(is_final(&status) && status.message().contains("worker 2 of job"), "{status}");
        }
        // Without TLS nothing is proved, and some certificates prove only that the caller is a node,
        // not which one.
        for connection in [PeerIdentity::Unchecked, PeerIdentity::Node] {
            assert_eq!(check(&connection).unwrap(), WorkerId(2));
        }
        // Workers that belong to no cluster.
        let apart = Identity { nodes: Vec::new(), ..identity() };
        assert_eq!(apart.check(&hello, Some(&member(9))).unwrap(), WorkerId(2));
    }

    #[test]
    fn options_that_differ_are_named() {
        let status = refusal(|hello| hello.spec_digest = vec![4; 16].into());
        let mut other = Identity { worker: WorkerId(2), ..identity() };
        assert!(!other.status_text(&status).contains("what differs"), "options are alike");
        other.options[0].digest = 9;
        other.options[2].digest = 9;
        let text = other.status_text(&status);
        assert!(text.ends_with("; what differs: --key, --scope"), "{text}");
        // Invalid details in a peer's status are ignored.
        let damaged =
            Status::with_details(Code::FailedPrecondition, "no", Bytes::from_static(b"\xff\xff"));
        assert_eq!(other.status_text(&damaged), "no");
    }

    #[test]
    fn another_protocol_is_refused() {
        let mut request = identity().request((), WorkerId(0), 0, Carries::Own);
        let hello = JobHello { protocol: 9, ..JobHello::default() };
        let value = MetadataValue::from_bytes(&hello.encode_to_vec());
        request.metadata_mut().insert_bin(HELLO, value);
        let status = hello_of(request.metadata()).unwrap_err();
        assert!(status.message().contains("protocol 5 is spoken here, worker 0 speaks 9"));
        assert!(hello_of(&MetadataMap::new()).is_err());
    }

    #[test]
    fn who_does_not_know_the_secret_proves_nothing() {
        let request = identity().request((), WorkerId(0), 3, Carries::Own);
        let hello = hello_of(request.metadata()).unwrap();
        assert_eq!(identity().check(&hello, None).unwrap(), WorkerId(0));
        let sent = hello.encode_to_vec();
        assert!(!sent.windows(6).any(|bytes| bytes == b"secret"), "it travels");
        let stranger = Identity { key: ProofKey::of(b"Secret"), ..identity() };
        for wrong in [
            // A proof of another secret, of another hello, none, and one that is too short.
            hello_of(stranger.request((), WorkerId(0), 3, Carries::Own).metadata()).unwrap(),
            JobHello { attempt: 4, ..hello.clone() },
            JobHello { proof: Bytes::new(), ..hello.clone() },
            JobHello { proof: hello.proof.slice(..31), ..hello },
        ] {
            let status = identity().check(&wrong, None).unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated, "{status}");
            assert!(status.message().contains("worker 0 does not know the secret"), "{status}");
        }
    }
}
