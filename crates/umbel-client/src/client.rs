//! The client: its connection to a cluster, and the operations on the catalogue of filters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use umbel_proto::v1::{
    ClearRequest, ClearResponse, CreateRequest, Distribution, DropRequest, ExpireRequest,
    FilterSummary, FlushRequest, FlushResponse, Hashing, InfoRequest, InfoResponse, Kind,
    ListRequest, RenameRequest, RotateRequest, Window,
};

use crate::caller::{CallPolicy, Caller, First, Repeat, ask};
use crate::catalogue::{Cleared, Created, Dropped, Flushed, Renamed};
use crate::connector::Connector;
use crate::error::{ClientError, Result};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::limits::LIST_PAGE_NAMES;
use crate::nodes::{Addresses, NoAddress, Nodes, Timeouts};
use crate::options::ClientOptions;
use crate::token::Bearer;

/// A client of a cluster. Cheap to clone; clones share connections, session and shard map.
///
/// All methods must be called within a tokio runtime with time and network enabled. A client may be used in several
/// runtimes, one after the other: it connects again once the runtime of a connection has ended.
#[derive(Clone)]
pub struct Client {
    pub(crate) caller: Arc<Caller>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("nodes", &self.node_addresses()).finish_non_exhaustive()
    }
}

/// The settings of a new filter. Plain data; zero means "not set".
///
/// ```
/// use umbel_client::{Distribution, Hashing, Kind, NewFilter};
///
/// let wanted = NewFilter { kind: Kind::Counting, ..NewFilter::for_rate(1_000_000, 0.01) };
/// assert_eq!((wanted.capacity, wanted.hashing), (1_000_000, Hashing::Unspecified));
/// assert_eq!(wanted.distribution, Distribution::Unspecified);
/// assert_eq!(NewFilter::like("seen").like, "seen");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct NewFilter {
    /// Its kind; blocked if unspecified.
    pub kind: Kind,
    /// The number of distinct items planned for, at least 1.
    pub capacity: u64,
    /// Probability that an absent item is reported as present at that number, above 0 and below 1.
    pub false_positive_rate: f64,
    /// Bytes over all shards, or of one copy of a replicated filter, in place of a rate.
    pub memory_bytes: u64,
    /// How items are hashed; keyed if unspecified.
    pub hashing: Hashing,
    /// How it is distributed over the nodes; partitioned if unspecified. Only blocked and single-shot
    /// filters, and windows, can be replicated.
    pub distribution: Distribution,
    /// Makes a filter that forgets items after a time. Then the kind must not be set, and the capacity
    /// covers the whole window.
    pub window: Option<Window>,
    /// Takes the shape and the key of this filter; then nothing else may be set.
    pub like: String,
}

impl NewFilter {
    /// A blocked filter with keyed hashing for this many items at this rate.
    #[must_use]
    pub const fn for_rate(capacity: u64, false_positive_rate: f64) -> Self {
        Self {
            kind: Kind::Unspecified,
            capacity,
            false_positive_rate,
            memory_bytes: 0,
            hashing: Hashing::Unspecified,
            distribution: Distribution::Unspecified,
            window: None,
            like: String::new(),
        }
    }

    /// A blocked filter with keyed hashing for this many items in this many bytes over all shards.
    #[must_use]
    pub fn for_memory(capacity: u64, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..Self::for_rate(capacity, 0.0) }
    }

    /// A filter that keeps an item for at least `slice_count` slices of time from its first arrival, and
    /// for at most one slice more. `capacity` covers the items of all slices together.
    ///
    /// ```
    /// use std::time::Duration;
    /// use umbel_client::NewFilter;
    ///
    /// let day = NewFilter::for_window(1_000_000, 0.001, Duration::from_secs(3_600), 24);
    /// assert_eq!(day.window.map(|window| window.slice_ms), Some(3_600_000));
    /// ```
    #[must_use]
    pub fn for_window(
        capacity: u64,
        false_positive_rate: f64,
        slice: Duration,
        slice_count: u32,
    ) -> Self {
        let slice_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
        let window = Window { slice_ms, slice_count, ..Window::default() };
        Self { window: Some(window), ..Self::for_rate(capacity, false_positive_rate) }
    }

    /// A filter that keeps items until [`Client::rotate`] was called `slice_count` + 1 times since they
    /// were inserted. `capacity` covers the items of all slices together.
    ///
    /// ```
    /// use umbel_client::NewFilter;
    ///
    /// let runs = NewFilter::for_manual_window(1_000_000, 0.001, 7);
    /// assert_eq!(runs.window.map(|window| (window.manual, window.slice_count)), Some((true, 7)));
    /// ```
    #[must_use]
    pub fn for_manual_window(capacity: u64, false_positive_rate: f64, slice_count: u32) -> Self {
        let window = Window { slice_count, manual: true, ..Window::default() };
        Self { window: Some(window), ..Self::for_rate(capacity, false_positive_rate) }
    }

    /// A filter that can be merged with the filter `other`.
    #[must_use]
    pub fn like(other: &str) -> Self {
        Self { like: other.to_owned(), ..Self::for_rate(0, 0.0) }
    }
}

impl Client {
    /// A client with the default options. It connects when it sends its first request.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), umbel_client::ClientError> {
    /// use umbel_client::{Client, NewFilter};
    ///
    /// let client = Client::connect("10.0.0.1:7000,10.0.0.2:7000")?;
    /// client.create("seen", &NewFilter::for_rate(1_000_000, 0.01)).await?;
    /// let inserted = client.filter("seen").insert(["alice"]).await?;
    /// assert_eq!(inserted.new_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Address` if there is no address, or one cannot be parsed.
    pub fn connect(addresses: impl Into<Addresses>) -> Result<Self> {
        Self::connect_with(addresses, ClientOptions::default())
    }

    /// A client with these options.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_with(addresses: impl Into<Addresses>, options: ClientOptions) -> Result<Self> {
        Self::with_connector(&addresses.into(), options, None)
    }

    /// A client whose connections `connector` makes.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_through(
        addresses: impl Into<Addresses>,
        options: ClientOptions,
        connector: impl Connector,
    ) -> Result<Self> {
        Self::with_connector(&addresses.into(), options, Some(Arc::new(connector)))
    }

    fn with_connector(
        addresses: &Addresses,
        options: ClientOptions,
        connector: Option<Arc<dyn Connector>>,
    ) -> Result<Self> {
        let options = options.within_limits();
        let bearer = Bearer(options.token.clone());
        let timeouts = Timeouts { connect: options.connect_timeout, probe: options.probe_timeout };
        let nodes = Nodes::new(addresses, timeouts, connector, bearer)
            .map_err(|NoAddress(address)| ClientError::Address { address })?;
        Ok(Self { caller: Arc::new(Caller::new(nodes, options)) })
    }

    /// Calls `tell` before each pause in which a request waits because no majority answers, or because the nodes that
    /// answer serve nobody yet: they are starting, or their cluster is not formed. The failure is the last node's
    /// answer; `tell` must not block. Of several calls only the first one has an effect.
    pub fn tell_waits(&self, tell: impl Fn(&Failure) + Send + Sync + 'static) {
        let _ = self.caller.told.set(Box::new(tell));
    }

    /// A handle for the filter of this name, which need not exist yet.
    #[must_use]
    pub fn filter(&self, name: &str) -> Filter {
        Filter::new(Arc::clone(&self.caller), name)
    }

    /// Addresses of the nodes that the client knows at the moment, sorted.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<String> {
        self.caller.nodes.addresses()
    }

    /// Creates a filter; returns once every shard has its part of it, or every node that answers has its
    /// copy. It is retried only if nothing was changed.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` with `NameTaken` if a filter of that name exists, whatever its
    /// settings; `ChangeUnknown` if the answer was lost: then [`info`](Self::info) shows what exists.
    pub async fn create(&self, name: &str, settings: &NewFilter) -> Result<Created> {
        let message = CreateRequest {
            name: name.to_owned(),
            kind: settings.kind.into(),
            capacity: settings.capacity,
            false_positive_rate: settings.false_positive_rate,
            memory_bytes: settings.memory_bytes,
            hashing: settings.hashing.into(),
            like: settings.like.clone(),
            distribution: settings.distribution.into(),
            window: settings.window,
        };
        let target = format!("filter {name:?}");
        let answer = ask!(self, CallPolicy::if_unchanged(&target), filters.create, message)?;
        let filter = answer.filter.ok_or_else(|| missing("the filter", &target))?;
        Ok(Created { filter, unconfirmed_nodes: answer.unconfirmed_nodes })
    }

    /// Drops a filter; returns once no node holds anything of it or, for a replicated filter, no node
    /// that answers.
    ///
    /// It is retried only if nothing was changed: another client may have created a new filter of this
    /// name in between.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if it may have been dropped.
    pub async fn drop_filter(&self, name: &str) -> Result<Dropped> {
        let target = format!("filter {name:?}");
        let message = DropRequest { name: name.to_owned() };
        let answer = ask!(self, CallPolicy::if_unchanged(&target), filters.drop, message)?;
        Ok(Dropped { unconfirmed_nodes: answer.unconfirmed_nodes })
    }

    /// All filters whose names begin with the prefix, sorted by name. Filters that are created or dropped
    /// meanwhile may or may not be listed.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn list(&self, prefix: &str) -> Result<Vec<FilterSummary>> {
        let policy = CallPolicy::freely("list of filters");
        let mut found: Vec<FilterSummary> = Vec::new();
        loop {
            let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
            let prefix = prefix.to_owned();
            let message =
                ListRequest { prefix, limit: LIST_PAGE_NAMES, after, ..ListRequest::default() };
            let page = ask!(self, policy, filters.list, message)?;
            let is_behind = match (found.last(), page.filters.first()) {
                (Some(last), Some(first)) => last.name < first.name,
                (_, first) => first.is_some(),
            };
            if page.has_more && !is_behind {
                // The loop would never end.
                return Err(missing("progress of the list", policy.target));
            }
            found.extend(page.filters);
            if !page.has_more {
                return Ok(found);
            }
        }
    }

    /// Describes a filter: its shape and load, and the part of each shard or the copy of each node with
    /// the numbers of distinct items inserted.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn info(&self, name: &str) -> Result<InfoResponse> {
        let target = format!("filter {name:?}");
        let message = InfoRequest { name: name.to_owned() };
        Ok(ask!(self, CallPolicy::freely(&target), filters.info, message)?)
    }

    /// Clears a filter, in all shards at one moment; each copy of a replicated filter is cleared when its
    /// node learns of it.
    ///
    /// It is retried only if nothing was changed: a second clear would also remove items inserted since
    /// the first.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if it may have been cleared: the generation shows it.
    pub async fn clear(&self, name: &str) -> Result<Cleared> {
        let target = format!("filter {name:?}");
        let message = ClearRequest { name: name.to_owned() };
        let answer = ask!(self, CallPolicy::if_unchanged(&target), filters.clear, message)?;
        let ClearResponse { generation, unconfirmed_nodes } = answer;
        Ok(Cleared { generation, unconfirmed_nodes })
    }

    /// Ends the current slice of a manual window, in all shards at one moment, and returns the filter's
    /// new generation. Later inserts go into a new slice, and the items of the oldest slice are gone.
    /// Concurrent calls rotate once.
    ///
    /// It is retried only if nothing was changed.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if it may have been rotated: the generation shows it.
    pub async fn rotate(&self, name: &str) -> Result<u64> {
        let target = format!("filter {name:?}");
        let message = RotateRequest { name: name.to_owned() };
        Ok(ask!(self, CallPolicy::if_unchanged(&target), filters.rotate, message)?.generation)
    }

    /// Renames a filter; the new name must be free. Once this returns, the filter answers under the new
    /// name and is refused under the old one.
    ///
    /// It is retried only if nothing was changed.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if the name is taken; `ChangeUnknown` if it may have been renamed:
    /// [`info`](Self::info) shows it.
    pub async fn rename(&self, name: &str, new_name: &str) -> Result<Renamed> {
        self.rename_as(name, new_name, false).await
    }

    /// Renames a filter and drops the filter that has the new name, if there is one. Requests for the new
    /// name are answered by the dropped filter up to some moment, and by the renamed one from then on.
    ///
    /// # Errors
    /// As for [`rename`](Self::rename).
    pub async fn rename_over(&self, name: &str, new_name: &str) -> Result<Renamed> {
        self.rename_as(name, new_name, true).await
    }

    async fn rename_as(&self, name: &str, new_name: &str, replace: bool) -> Result<Renamed> {
        let target = format!("filter {name:?}");
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let message = RenameRequest { name, new_name, replace };
        let answer = ask!(self, CallPolicy::if_unchanged(&target), filters.rename, message)?;
        let filter = answer.filter.ok_or_else(|| missing("the filter", "rename"))?;
        Ok(Renamed { filter, unconfirmed_nodes: answer.unconfirmed_nodes })
    }

    /// Makes the copies of a replicated filter exchange their contents; returns once every node that
    /// answers holds everything that any node acknowledged before the call.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm. Nodes that do not answer are no error; the result
    /// lists them.
    pub async fn flush(&self, name: &str) -> Result<Flushed> {
        let target = format!("filter {name:?}");
        let policy = CallPolicy { target: &target, repeat: Repeat::Freely, first: First::Home };
        let message = FlushRequest { name: name.to_owned() };
        let answer = ask!(self, policy, filters.flush, message)?;
        let FlushResponse { nodes, missing_nodes } = answer;
        Ok(Flushed { nodes, missing_nodes })
    }

    /// Sets a filter to expire after a time, of at least a millisecond, or never. Returns the time of
    /// expiry, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn expire(&self, name: &str, after: Option<Duration>) -> Result<Option<u64>> {
        let named = format!("filter {name:?}");
        let after_ms = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let message = ExpireRequest { name: name.to_owned(), after_ms };
        Ok(ask!(self, CallPolicy::order(&named), filters.expire, message)?.expires_ms)
    }
}

/// The error for an answer without a required field.
pub(crate) fn missing(what: &str, target: &str) -> ClientError {
    let text = format!("the answer misses {what}");
    ClientError::BadAnswer(Box::new(Failure::bad_answer(text, target, "(last called)")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn debug_output_names_nodes_and_no_token() {
        let token = Some(Token::new("crawler.5f0c").unwrap());
        let options = ClientOptions { token, ..ClientOptions::default() };
        let client = Client::connect_with("b:1,a:1", options).unwrap();
        assert_eq!(format!("{client:?}"), r#"Client { nodes: ["a:1", "b:1"], .. }"#);
        let said = r#"Filter { name: "seen", nodes: ["a:1", "b:1"], .. }"#;
        assert_eq!(format!("{:?}", client.filter("seen")), said);
    }
}
