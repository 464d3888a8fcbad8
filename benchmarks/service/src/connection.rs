//! One connection to what is measured: batches out, answers in.

use anyhow::{Result, bail, ensure};
use umbel_client::{Client, Filter, Hashing, NewFilter, PackedBatch, ReadLevel, TlsFiles};

use crate::calls::{Calls, Streams};
use crate::check::Answers;
use crate::resp::{Reply, RespStream};
use crate::system::{Request, Servers, connect};

/// Key of the set that Redis keeps items in.
const SET: &[u8] = b"s";

/// What is done with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Insert,
    Contains,
}

/// A connection of its own to a filter, or to a server of Redis.
pub(crate) enum Connection {
    Umbel(Filter),
    /// A handle that other tasks have, too: single items of all of them travel together.
    Shared(Filter),
    /// Calls over one connection that other tasks use, too.
    Calls(Calls),
    /// A stream that other tasks use, too.
    Stream(Streams),
    Redis(Request, RespStream),
}

impl Connection {
    /// Does it with all items of the batch, which is empty then, and waits for the answers.
    pub(crate) async fn call(&mut self, verb: Verb, batch: &mut PackedBatch) -> Result<Answers> {
        match (self, verb) {
            (Self::Shared(filter), Verb::Insert) if batch.len() == 1 => {
                let is_new = filter.insert_one(only(batch)).await?;
                batch.clear();
                Ok(Answers::Each(vec![!is_new]))
            }
            (Self::Shared(filter), Verb::Contains) if batch.len() == 1 => {
                let is_present = filter.contains_one(only(batch), ReadLevel::Linearizable).await?;
                batch.clear();
                Ok(Answers::Each(vec![is_present]))
            }
            (Self::Umbel(filter) | Self::Shared(filter), Verb::Insert) => {
                let inserted = filter.insert_packed(batch.take()).await?;
                Ok(Answers::Each(inserted.iter().map(|is_new| !is_new).collect()))
            }
            (Self::Umbel(filter) | Self::Shared(filter), Verb::Contains) => {
                let answers = filter.contains_packed(batch.take(), ReadLevel::Linearizable).await?;
                Ok(Answers::Each(answers.iter().collect()))
            }
            (Self::Calls(calls), verb) => {
                let answers = calls.call(verb, batch).await;
                batch.clear();
                answers
            }
            (Self::Stream(streams), verb) => {
                let answers = streams.call(verb, batch).await;
                batch.clear();
                answers
            }
            (Self::Redis(request, stream), verb) => {
                let answers = call_redis(*request, stream, verb, batch).await;
                batch.clear();
                answers
            }
        }
    }
}

fn only(batch: &PackedBatch) -> &[u8] {
    batch.iter().next().expect("it has an item")
}

async fn call_redis(
    request: Request,
    stream: &mut RespStream,
    verb: Verb,
    batch: &PackedBatch,
) -> Result<Answers> {
    let (item_count, is_insert) = (batch.len(), verb == Verb::Insert);
    if request == Request::SaddMany {
        stream.begin(item_count + 2);
        stream.word(if is_insert { b"SADD" } else { b"SMISMEMBER" });
        stream.word(SET);
        batch.iter().for_each(|item| stream.word(item));
        stream.send().await?;
        return match stream.reply().await? {
            Reply::Integer(new_count) if is_insert => {
                let new_count = usize::try_from(new_count)?;
                ensure!(new_count <= item_count, "{new_count} of {item_count} items new");
                Ok(Answers::PresentCount(item_count - new_count))
            }
            Reply::List(count) if count == item_count => each(stream, count, 1).await,
            other => bail!("{other:?} is no answer to {item_count} items"),
        };
    }
    for item in batch.iter() {
        match (request, is_insert) {
            (Request::SetNx, true) => {
                stream.begin(4);
                stream.word(b"SET");
                stream.word(item);
                stream.word(b"1");
                stream.word(b"NX");
                continue;
            }
            (Request::SetNx, false) => {
                stream.begin(2);
                stream.word(b"EXISTS");
            }
            (_, is_insert) => {
                stream.begin(3);
                stream.word(if is_insert { b"SADD" } else { b"SISMEMBER" });
                stream.word(SET);
            }
        }
        stream.word(item);
    }
    stream.send().await?;
    // SADD answers 1 for a new item; the questions answer 1 for a present one.
    each(stream, item_count, if is_insert { 0 } else { 1 }).await
}

/// Answers of single items: this number, or none where `SET … NX` found the key, means present.
async fn each(stream: &mut RespStream, count: usize, present: i64) -> Result<Answers> {
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        answers.push(match stream.reply().await? {
            Reply::Integer(number @ (0 | 1)) => number == present,
            Reply::Null => true,
            Reply::Status(status) if status == "OK" => false,
            other => bail!("{other:?} is no answer to an item"),
        });
    }
    Ok(Answers::Each(answers))
}

/// An empty filter, or an empty server of Redis, and connections to it.
pub(crate) struct Store {
    request: Request,
    addresses: Vec<String>,
    tls: Option<TlsFiles>,
    name: String,
}

impl Store {
    /// Empties the server and makes what items go into.
    pub(crate) async fn empty(
        servers: &Servers,
        request: Request,
        capacity: u64,
        rate: f64,
    ) -> Result<Self> {
        let addresses = servers.addresses.clone();
        let name = match request {
            Request::Keyed
            | Request::Public
            | Request::Joined
            | Request::Calls
            | Request::Stream => empty_umbel(&servers.client()?, request, capacity, rate).await?,
            Request::SetNx | Request::Sadd | Request::SaddMany => {
                let mut stream = RespStream::connect(&addresses[0]).await?;
                let done = stream.ask(&["FLUSHALL", "SYNC"]).await?;
                ensure!(done == Reply::Status("OK".into()), "FLUSHALL: {done:?}");
                String::new()
            }
        };
        Ok(Self { request, addresses, tls: servers.tls.clone(), name })
    }

    /// The filter's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// So many connections; `is_shared` lets those to Umbel be one handle with as many calls at
    /// once.
    pub(crate) async fn connect(&self, count: usize, is_shared: bool) -> Result<Vec<Connection>> {
        let client = || connect(&self.addresses, self.tls.as_ref());
        let address = &self.addresses[0];
        // One for all, or none.
        match self.request {
            Request::Joined => {
                let filter = client()?.filter(&self.name);
                return Ok(vec![filter; count].into_iter().map(Connection::Shared).collect());
            }
            Request::Calls => {
                let calls = Calls::connect(address, &self.name).await?;
                return Ok(vec![calls; count].into_iter().map(Connection::Calls).collect());
            }
            Request::Stream => {
                let streams = Streams::open(address, &self.name).await?;
                return Ok(vec![streams; count].into_iter().map(Connection::Stream).collect());
            }
            _ => {}
        }
        let mut connections = Vec::with_capacity(count);
        let shared = client()?.filter(&self.name);
        for _ in 0..count {
            connections.push(match self.request {
                Request::Keyed | Request::Public if is_shared => Connection::Shared(shared.clone()),
                Request::Keyed | Request::Public => Connection::Umbel(client()?.filter(&self.name)),
                request => Connection::Redis(request, RespStream::connect(address).await?),
            });
        }
        Ok(connections)
    }
}

/// Drops all filters and makes another one, with a name that no client knows yet.
async fn empty_umbel(
    client: &Client,
    request: Request,
    capacity: u64,
    rate: f64,
) -> Result<String> {
    let mut last = 0;
    for filter in client.list("bench-").await? {
        last = last.max(filter.filter_id);
        client.drop_filter(&filter.name).await?;
    }
    let name = format!("bench-{}", last + 1);
    let hashing = if request == Request::Public { Hashing::Public } else { Hashing::Keyed };
    client.create(&name, &NewFilter { hashing, ..NewFilter::for_rate(capacity, rate) }).await?;
    Ok(name)
}
