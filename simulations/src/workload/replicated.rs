//! Calls on replicated filters. Each is sent once, to the node that the plan names, because their
//! guarantees depend on the copy that is asked.

use std::time::Duration;

use tonic::{Response, Status};
use umbel_client::Applied;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{
    AckLevel, ClearRequest, ContainsRequest, CreateRequest, Distribution, DropRequest, ErrorCode,
    ErrorDetail, FlushRequest, InsertRequest, ReadLevel,
};

use super::{CREATE_PAUSE, Clients, REQUEST_TIMEOUT, bits, items_of};
use crate::channel::NodeChannel;
use crate::history::Outcome;
use crate::plan::{Ack, FilterKind, Op, WINDOW};

/// How long a node may take for a batch of items.
const ITEMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Many times the number of items that a run inserts within a window.
const WINDOW_CAPACITY_MIN: u64 = 100_000;

/// A client of one node.
type NodeClient = FiltersClient<NodeChannel>;

impl Clients {
    /// Whether a filter is replicated.
    pub(super) fn is_replicated(&self, name: &str) -> bool {
        self.filters.iter().any(|filter| filter.name == name && filter.replicated)
    }

    /// The machine for a node that a plan names. The numbers of joiners are mapped to founders.
    pub(super) fn machine(&self, via: u32) -> u32 {
        let count = u32::try_from(self.addresses.len()).expect("a few nodes");
        (via - 1) % count + 1
    }

    /// Carries out an operation on a replicated filter at this machine's node.
    pub(super) async fn call_copy(&self, machine: u32, op: &Op) -> Outcome {
        let node = self.copy_client(machine);
        let changes = !matches!(op, Op::ContainsCopy { .. } | Op::Flush { .. });
        match tokio::time::timeout(REQUEST_TIMEOUT, self.ask(node, op)).await {
            Ok(Ok(bits)) => Outcome::Done(bits),
            Ok(Err(status)) => {
                self.forget_copy_client(machine);
                let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap_or_default();
                if detail.applied() == Applied::No || !changes {
                    Outcome::NotApplied(status.to_string())
                } else {
                    Outcome::Unknown(status.to_string())
                }
            }
            Err(_) => {
                self.forget_copy_client(machine);
                let text = "no answer".to_owned();
                if changes { Outcome::Unknown(text) } else { Outcome::NotApplied(text) }
            }
        }
    }

    async fn ask(&self, mut node: NodeClient, op: &Op) -> Result<Vec<bool>, Status> {
        match op {
            Op::InsertCopy { filter, items, ack } => {
                let level = match ack {
                    Ack::Local => AckLevel::Local,
                    Ack::OnePartner => AckLevel::OnePartner,
                    Ack::Majority => AckLevel::Majority,
                };
                let request = InsertRequest {
                    filter: filter.clone(),
                    items: Some(items_of(items)),
                    request: None,
                    timeout_ms: timeout_ms(),
                    at_ms: None,
                    level: level.into(),
                };
                Ok(bits(&node.insert(request).await?.into_inner().new_bits, items.len()))
            }
            Op::ContainsCopy { filter, items, majority } => {
                let level = if *majority { ReadLevel::Majority } else { ReadLevel::Local };
                let request = ContainsRequest {
                    filter: filter.clone(),
                    items: Some(items_of(items)),
                    level: level.into(),
                    timeout_ms: timeout_ms(),
                };
                Ok(bits(&node.contains(request).await?.into_inner().present_bits, items.len()))
            }
            Op::Flush { filter } => {
                let answer = node.flush(FlushRequest { name: filter.clone() }).await?.into_inner();
                Ok(vec![answer.missing_nodes.is_empty()])
            }
            Op::Clear { filter } => done(node.clear(ClearRequest { name: filter.clone() }).await),
            Op::Create { filter } => done(node.create(self.creation(filter)).await),
            Op::Drop { filter } => done(node.drop(DropRequest { name: filter.clone() }).await),
            Op::Insert { .. }
            | Op::Contains { .. }
            | Op::Remove { .. }
            | Op::Rotate { .. }
            | Op::Snapshot { .. }
            | Op::Rename { .. }
            | Op::Merge { .. }
            | Op::Intersect { .. }
            | Op::AddNew { .. }
            | Op::Expire { .. }
            | Op::Take { .. }
            | Op::AddOne { .. }
            | Op::DeleteOne { .. }
            | Op::ExpireIn { .. }
            | Op::AddVia { .. }
            | Op::AskVia { .. } => {
                unreachable!("a plan that was checked has it for partitioned filters only")
            }
        }
    }

    /// Creates a replicated filter, and retries until it exists.
    pub(super) async fn create_copies(&self, name: &str) {
        while let Err(status) = self.copy_client(1).create(self.creation(name)).await {
            let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap_or_default();
            if detail.code() == ErrorCode::NameTaken {
                return;
            }
            self.forget_copy_client(1);
            tokio::time::sleep(CREATE_PAUSE).await;
        }
    }

    fn creation(&self, name: &str) -> CreateRequest {
        let own = self.filters.iter().find(|filter| filter.name == name);
        let own = own.expect("a plan that was checked names only filters that it has");
        let kind = match own.kind {
            FilterKind::SingleShot => umbel_client::Kind::SingleShot,
            FilterKind::Window => umbel_client::Kind::Window,
            _ => umbel_client::Kind::Blocked,
        };
        let window = (own.kind == FilterKind::Window).then(|| umbel_client::proto::Window {
            slice_ms: WINDOW.slice_ms,
            slice_count: WINDOW.slice_count,
            ..umbel_client::proto::Window::default()
        });
        // Windows get a low rate and a large capacity, so that no two of their items share a fingerprint.
        let (rate, capacity) = match &window {
            Some(_) => (1e-6, own.capacity.max(WINDOW_CAPACITY_MIN)),
            None => (f64::from(own.rate_ppm) / 1e6, own.capacity),
        };
        let hashing =
            if own.public { umbel_client::Hashing::Public } else { umbel_client::Hashing::Keyed };
        CreateRequest {
            name: name.to_owned(),
            kind: kind.into(),
            capacity,
            false_positive_rate: rate,
            window,
            hashing: hashing.into(),
            distribution: Distribution::Replicated.into(),
            ..CreateRequest::default()
        }
    }

    /// The client of a machine's node: the one that was used before, unless a call on it failed.
    fn copy_client(&self, machine: u32) -> NodeClient {
        let mut clients = self.copy_clients.borrow_mut();
        clients.entry(machine).or_insert_with(|| self.node(machine)).clone()
    }

    fn forget_copy_client(&self, machine: u32) {
        self.copy_clients.borrow_mut().remove(&machine);
    }
}

fn done<T>(answer: Result<Response<T>, Status>) -> Result<Vec<bool>, Status> {
    answer.map(|_| Vec::new())
}

fn timeout_ms() -> u32 {
    u32::try_from(ITEMS_TIMEOUT.as_millis()).expect("a few seconds")
}
