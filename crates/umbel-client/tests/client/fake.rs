//! A cluster in this process that keeps items in sets, remembers answers, and fails on demand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status, Streaming};
use umbel_client::proto::admin_server::{Admin, AdminServer};
use umbel_client::proto::filters_server::{Filters, FiltersServer};
use umbel_client::proto::*;
use umbel_filter::ItemHasher;

mod admin;
mod listing;

type Many<T> = Request<Streaming<T>>;
type Answer<T> = Result<Response<T>, Status>;
type Chunks<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How a call fails.
#[derive(Clone)]
pub(crate) enum Fault {
    /// It is answered with this status and not carried out.
    Refuse(Code, ErrorDetail),
    /// It is carried out and answered with this status.
    DoAndRefuse(Code, ErrorDetail),
    /// It is carried out and never answered.
    DoAndHang,
    /// The node's handler panics before the call is carried out.
    Break,
    /// The answer lacks its last byte.
    Shorten,
}

/// An insert, query or removal that a node received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) node: usize,
    /// All zero if the call had none.
    pub(crate) request: RequestId,
    pub(crate) items: Items,
    /// The level as received.
    pub(crate) level: i32,
}

/// The state that all nodes share.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) filters: BTreeMap<String, (FilterSummary, BTreeSet<Vec<u8>>)>,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) session_count: u64,
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) map: ShardMapResponse,
    /// The headers of the calls that listed filters.
    pub(crate) list_headers: Vec<MetadataMap>,
    /// Sessions that the cluster has forgotten.
    pub(crate) forgotten: BTreeSet<u64>,
    /// Nodes that never confirm changes of replicated filters.
    pub(crate) silent_nodes: Vec<u64>,
    /// Whether lists and sessions are refused for lack of a majority.
    pub(crate) has_no_majority: bool,
    /// Whether the nodes are of a release whose lists bring no shard map, and whose sessions no list.
    pub(crate) is_old: bool,
    answers: BTreeMap<(u64, u64), Vec<bool>>,
}

/// Nodes on loopback ports.
pub(crate) struct Cluster {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) addresses: Vec<String>,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts nodes that lead one shard each.
    pub(crate) async fn start(count: usize) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        let (mut addresses, mut tasks) = (Vec::new(), Vec::new());
        for index in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let node = Node { index, world: Arc::clone(&world) };
            let filters = FiltersServer::new(node.clone()).max_decoding_message_size(20 << 20);
            let server = Server::builder().add_service(filters).add_service(AdminServer::new(node));
            let serve = server.serve_with_incoming(TcpIncoming::from(listener));
            tasks.push(tokio::spawn(async move { serve.await.unwrap() }));
        }
        let width = u64::MAX / count as u64;
        let last = |i: usize| if i + 1 == count { u64::MAX } else { width * (i as u64 + 1) };
        let shards = (0..count).map(|i| ShardRoute {
            shard: u32::try_from(i).unwrap(),
            range_last: last(i),
            leader: i as u64 + 1,
        });
        let nodes = (1..).zip(&addresses);
        let nodes = nodes.map(|(node, address)| NodeRoute { node, address: address.clone() });
        world.lock().unwrap().map =
            ShardMapResponse { epoch: 1, shards: shards.collect(), nodes: nodes.collect() };
        Self { world, addresses, tasks }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.world().faults.extend(faults);
    }

    /// Adds a filter without a call.
    pub(crate) fn put(&self, name: &str, hashing: Hashing, key_id: u64) {
        let (name, hashing) = (name.to_owned(), hashing.into());
        let summary = FilterSummary { name: name.clone(), hashing, key_id, ..Default::default() };
        self.world().filters.insert(name, (summary, BTreeSet::new()));
    }

    /// Adds a replicated filter without a call; its hashing does not matter.
    pub(crate) fn put_replicated(&self, name: &str) {
        self.put(name, Hashing::Public, 42);
        let mut world = self.world();
        let (summary, _) = world.filters.get_mut(name).unwrap();
        summary.distribution = Distribution::Replicated.into();
    }

    /// Inserts, queries and removals received so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.world().seen.clone()
    }

    pub(crate) async fn stop_node(&mut self, index: usize) {
        self.tasks[index].abort();
        let _ = (&mut self.tasks[index]).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[derive(Clone)]
struct Node {
    index: usize,
    world: Arc<Mutex<World>>,
}

pub(crate) fn detail(code: ErrorCode, applied: Applied) -> ErrorDetail {
    ErrorDetail { code: code.into(), applied: applied.into(), retry_after_ms: 1 }
}

pub(crate) fn status(code: Code, detail: &ErrorDetail) -> Status {
    let text = "as told";
    Status::with_details(code, text, umbel_proto::details_of(code, text, detail))
}

/// The keys of the sets: hashes for filters with public hashing, else items.
fn keys(items: &Items, summary: &FilterSummary) -> Vec<Vec<u8>> {
    let hasher = ItemHasher::Xxh3 { seed: summary.key_id };
    let key = |item: &[u8]| match summary.hashing() {
        Hashing::Public => {
            let hash = hasher.hash(item);
            [hash.hi().to_le_bytes(), hash.lo().to_le_bytes()].concat()
        }
        _ => item.to_vec(),
    };
    if let Some(packed) = &items.packed {
        let mut data = packed.data.clone();
        return packed.item_bytes.iter().map(|&b| key(&data.split_to(b as usize))).collect();
    }
    items.hashes.chunks(16).map(<[u8]>::to_vec).collect()
}

fn bits(answers: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0; answers.len().div_ceil(8)];
    for (at, _) in answers.iter().enumerate().filter(|(_, one)| **one) {
        bytes[at / 8] |= 1 << (at % 8);
    }
    bytes
}

/// Refuses a request of a forgotten session. As real nodes do, it leaves open whether an earlier attempt was
/// applied.
fn check_session(forgotten: &BTreeSet<u64>, request: Option<RequestId>) -> Result<(), Status> {
    if request.is_some_and(|request| forgotten.contains(&request.session)) {
        let detail = detail(ErrorCode::SessionExpired, Applied::Unknown);
        return Err(status(Code::FailedPrecondition, &detail));
    }
    Ok(())
}

impl Node {
    fn count(&self, call: &'static str) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap();
        *world.calls.entry(call).or_default() += 1;
        world
    }

    async fn items(
        &self,
        filter: String,
        items: Option<Items>,
        request: Option<RequestId>,
        level: i32,
        apply: fn(&mut BTreeSet<Vec<u8>>, Vec<u8>) -> bool,
    ) -> Result<Vec<u8>, Status> {
        let items = items.unwrap();
        let fault = {
            let mut world = self.count("items");
            let seen = Seen {
                node: self.index,
                request: request.unwrap_or_default(),
                items: items.clone(),
                level,
            };
            world.seen.push(seen);
            world.faults.pop_front()
        };
        match &fault {
            Some(Fault::Refuse(code, detail)) => return Err(status(*code, detail)),
            Some(Fault::Break) => panic!("told to break"),
            _ => {}
        }
        let answers = self.apply(&filter, &items, request, apply)?;
        let mut bytes = bits(&answers);
        match fault {
            Some(Fault::DoAndRefuse(code, detail)) => return Err(status(code, &detail)),
            Some(Fault::DoAndHang) => std::future::pending::<()>().await,
            Some(Fault::Shorten) => drop(bytes.pop()),
            _ => {}
        }
        Ok(bytes)
    }

    /// The level of the answer, given the defaults for partitioned and replicated filters; partitioned
    /// filters refuse some levels.
    fn level(
        &self,
        filter: &str,
        level: i32,
        defaults: [i32; 2],
        replicated_only: &[i32],
    ) -> Result<i32, Status> {
        let world = self.world.lock().unwrap();
        let summary = world.filters.get(filter).map(|(summary, _)| summary);
        let is_replicated =
            summary.is_some_and(|summary| summary.distribution() == Distribution::Replicated);
        if !is_replicated && replicated_only.contains(&level) {
            let detail = detail(ErrorCode::Invalid, Applied::No);
            return Err(status(Code::InvalidArgument, &detail));
        }
        Ok(if level == 0 { defaults[usize::from(is_replicated)] } else { level })
    }

    fn apply(
        &self,
        filter: &str,
        items: &Items,
        request: Option<RequestId>,
        apply: fn(&mut BTreeSet<Vec<u8>>, Vec<u8>) -> bool,
    ) -> Result<Vec<bool>, Status> {
        let mut world = self.world.lock().unwrap();
        let World { filters, answers, forgotten, .. } = &mut *world;
        let id = request.as_ref().map(|r| (r.session, r.sequence));
        check_session(forgotten, request)?;
        if let Some(first) = id.and_then(|id| answers.get(&id)) {
            return Ok(first.clone());
        }
        let Some((summary, set)) = filters.get_mut(filter) else {
            let detail = detail(ErrorCode::UnknownFilter, Applied::No);
            return Err(status(Code::NotFound, &detail));
        };
        let found: Vec<bool> =
            keys(items, summary).into_iter().map(|key| apply(set, key)).collect();
        if let Some(id) = id {
            answers.insert(id, found.clone());
        }
        Ok(found)
    }
}

#[tonic::async_trait]
impl Filters for Node {
    async fn create(&self, request: Request<CreateRequest>) -> Answer<CreateResponse> {
        let CreateRequest { name, capacity, kind, hashing, distribution, .. } =
            request.into_inner();
        let mut world = self.count("create");
        let name_again = name.clone();
        let filter =
            FilterSummary { name, capacity, kind, hashing, distribution, ..Default::default() };
        world.filters.insert(name_again, (filter.clone(), BTreeSet::new()));
        let unconfirmed_nodes = world.silent_nodes.clone();
        Ok(Response::new(CreateResponse { filter: Some(filter), unconfirmed_nodes }))
    }

    async fn drop(&self, request: Request<DropRequest>) -> Answer<DropResponse> {
        let mut world = self.count("drop");
        world.filters.remove(&request.into_inner().name);
        Ok(Response::new(DropResponse { unconfirmed_nodes: world.silent_nodes.clone() }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.count("list").listed(request)
    }

    async fn info(&self, request: Request<InfoRequest>) -> Answer<InfoResponse> {
        let world = self.count("info");
        let filter = world.filters.get(&request.into_inner().name).map(|f| f.0.clone());
        Ok(Response::new(InfoResponse { filter, ..Default::default() }))
    }

    async fn insert(&self, request: Request<InsertRequest>) -> Answer<InsertResponse> {
        let InsertRequest { filter, items, request, level, .. } = request.into_inner();
        let [local, partner] = [AckLevel::Local, AckLevel::OnePartner].map(i32::from);
        let defaults = [AckLevel::Majority.into(), local];
        let answered = self.level(&filter, level, defaults, &[local, partner])?;
        let new_bits = self.items(filter, items, request, level, BTreeSet::insert).await?.into();
        Ok(Response::new(InsertResponse { new_bits, level: answered, ..Default::default() }))
    }

    async fn contains(&self, request: Request<ContainsRequest>) -> Answer<ContainsResponse> {
        let ContainsRequest { filter, items, level, .. } = request.into_inner();
        let [local, majority] = [ReadLevel::Local, ReadLevel::Majority].map(i32::from);
        let defaults = [ReadLevel::Linearizable.into(), local];
        let answered = self.level(&filter, level, defaults, &[local, majority])?;
        let bits = self.items(filter, items, None, level, |set, key| set.contains(&key)).await?;
        let present_bits = bits.into();
        Ok(Response::new(ContainsResponse { present_bits, level: answered, ..Default::default() }))
    }

    type InsertStreamStream = Chunks<InsertAnswer>;

    async fn insert_stream(&self, _: Many<InsertRequest>) -> Answer<Chunks<InsertAnswer>> {
        Err(Status::internal("the client opens no streams"))
    }

    type ContainsStreamStream = Chunks<ContainsAnswer>;

    async fn contains_stream(&self, _: Many<ContainsRequest>) -> Answer<Chunks<ContainsAnswer>> {
        Err(Status::internal("the client opens no streams"))
    }

    async fn contains_any(
        &self,
        request: Request<ContainsAnyRequest>,
    ) -> Answer<ContainsAnyResponse> {
        let ContainsAnyRequest { filters, items, level, .. } = request.into_inner();
        let items = items.unwrap();
        let mut first_filters = vec![0; items.packed.as_ref().unwrap().item_bytes.len()];
        for (number, filter) in (1..).zip(filters) {
            let items = Some(items.clone());
            let bits =
                self.items(filter, items, None, level, |set, key| set.contains(&key)).await?;
            let has = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
            let open = first_filters.iter_mut().enumerate().filter(|(_, first)| **first == 0);
            open.filter(|(at, _)| has(*at)).for_each(|(_, first)| *first = number);
        }
        Ok(Response::new(ContainsAnyResponse { first_filters, level }))
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Answer<RemoveResponse> {
        let RemoveRequest { filter, items, request, .. } = request.into_inner();
        let bits = self.items(filter, items, request, 0, |set, key| set.remove(&key)).await?;
        Ok(Response::new(RemoveResponse { removed_bits: bits.into(), ..Default::default() }))
    }

    async fn clear(&self, _: Request<ClearRequest>) -> Answer<ClearResponse> {
        let mut world = self.count("clear");
        let fault = world.faults.pop_front();
        let unconfirmed_nodes = world.silent_nodes.clone();
        drop(world);
        match fault {
            Some(Fault::Refuse(code, detail)) => Err(status(code, &detail)),
            Some(Fault::Break) => panic!("told to break"),
            _ => Ok(Response::new(ClearResponse { generation: 2, unconfirmed_nodes })),
        }
    }

    async fn rotate(&self, _: Request<RotateRequest>) -> Answer<RotateResponse> {
        let mut world = self.count("rotate");
        match world.faults.pop_front() {
            Some(Fault::Refuse(code, detail)) => Err(status(code, &detail)),
            _ => Ok(Response::new(RotateResponse { generation: 2 })),
        }
    }

    async fn rename(&self, request: Request<RenameRequest>) -> Answer<RenameResponse> {
        let mut world = self.count("rename");
        match world.faults.pop_front() {
            Some(Fault::Refuse(code, detail)) => Err(status(code, &detail)),
            _ => {
                let name = request.into_inner().new_name;
                let filter = Some(FilterSummary { name, ..FilterSummary::default() });
                let unconfirmed_nodes = world.silent_nodes.clone();
                Ok(Response::new(RenameResponse { filter, unconfirmed_nodes }))
            }
        }
    }

    async fn expire(&self, request: Request<ExpireRequest>) -> Answer<ExpireResponse> {
        Ok(Response::new(ExpireResponse { expires_ms: request.into_inner().after_ms }))
    }

    async fn overlap(&self, _: Request<OverlapRequest>) -> Answer<OverlapResponse> {
        Ok(Response::new(OverlapResponse::default()))
    }

    async fn merge(&self, request: Request<MergeRequest>) -> Answer<MergeResponse> {
        let MergeRequest { sources, request, .. } = request.into_inner();
        let mut world = self.count("merge");
        check_session(&world.forgotten, request)?;
        let fault = world.faults.pop_front();
        if let Some(Fault::Refuse(code, detail) | Fault::DoAndRefuse(code, detail)) = fault {
            return Err(status(code, &detail));
        }
        Ok(Response::new(MergeResponse { new_position_count: sources.len() as u64 }))
    }

    async fn intersect(&self, request: Request<MergeRequest>) -> Answer<MergeResponse> {
        let fault = self.count("intersect").faults.pop_front();
        if let Some(Fault::Refuse(code, detail) | Fault::DoAndRefuse(code, detail)) = fault {
            return Err(status(code, &detail));
        }
        let new_position_count = request.into_inner().sources.len() as u64;
        Ok(Response::new(MergeResponse { new_position_count }))
    }

    async fn flush(&self, _: Request<FlushRequest>) -> Answer<FlushResponse> {
        let world = self.count("flush");
        let missing_nodes = world.silent_nodes.clone();
        let nodes = world.map.nodes.iter().map(|node| node.node);
        let nodes = nodes.filter(|node| !missing_nodes.contains(node)).collect();
        Ok(Response::new(FlushResponse { nodes, missing_nodes }))
    }

    type ExportStream = Chunks<ExportChunk>;

    async fn export(&self, request: Request<ExportRequest>) -> Answer<Self::ExportStream> {
        use export_chunk::Part;
        let mut parts = vec![
            Part::Header(ExportHeader::default()),
            Part::Frame(ExportFrame { shard: 0, frame: "frame".into() }),
        ];
        if request.into_inner().name != "cut short" {
            parts.push(Part::End(ExportEnd { frame_count: 1, checksum: 0 }));
        }
        let chunks = parts.into_iter().map(|part| Ok(ExportChunk { part: Some(part) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(chunks.collect::<Vec<_>>()))))
    }

    async fn import(&self, request: Many<ImportChunk>) -> Answer<ImportResponse> {
        let mut chunks = request.into_inner();
        let mut name = String::new();
        while let Some(chunk) = chunks.next().await {
            if let Some(import_chunk::Part::Header(header)) = chunk?.part {
                name = header.name;
            }
        }
        let filter = Some(FilterSummary { name, ..Default::default() });
        Ok(Response::new(ImportResponse { filter }))
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Answer<OpenSessionResponse> {
        self.count("open_session").opened(request.into_inner())
    }
}
