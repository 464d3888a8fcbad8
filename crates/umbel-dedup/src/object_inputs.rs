//! Objects of a store as inputs: an object by its key, all objects below a prefix, or all that match a
//! pattern.

use super::addresses::object_address;
use super::format_rule::FormatRule;
use super::inputs::{Location, Source, detected};
use super::name_filter::NameFilter;
use super::turns::{lock, run_tasks};
use crate::error::{Context, Result};
use glob::{MatchOptions, Pattern};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use umbel_files::UsageError;
use umbel_objects::{ObjectAddress, ObjectStore, StoreError};
use umbel_records::{Format, RemoteBytes};

/// Objects that are opened, listed or completed at the same time: each waits for one response of the store.
pub(super) const OPENING_THREADS: usize = 16;

/// Patterns match keys as they match paths: `*` matches within a directory, and names may begin with a dot.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// The store that the environment names, connected when it is first needed.
#[derive(Debug)]
pub struct ObjectStores {
    memory_bytes: u64,
    store: Mutex<Option<Arc<ObjectStore>>>,
}

impl ObjectStores {
    /// For a process with this much memory.
    pub const fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes, store: Mutex::new(None) }
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] about a variable of the environment; another error if there are no trusted certificates.
    pub(crate) fn store(&self) -> Result<Arc<ObjectStore>> {
        let mut store = lock(&self.store);
        if store.is_none() {
            *store = Some(match ObjectStore::from_environment(self.memory_bytes) {
                Ok(opened) => opened,
                Err(StoreError::Variable(text)) => return Err(UsageError(text).into()),
                Err(error) => return Err(error.into()),
            });
        }
        Ok(Arc::clone(store.as_ref().expect("just set")))
    }
}

/// The objects that an argument names, ordered by the bytes of their keys.
///
/// # Errors
///
/// A [`UsageError`] if there is none; any other error names the object.
pub(super) fn object_sources(
    arg: &str,
    format: FormatRule,
    stores: &ObjectStores,
    names: &NameFilter,
) -> Result<Vec<Source>> {
    let address = object_address(arg)?;
    let store = stores.store()?;
    let addresses = match address.prefix_of_pattern() {
        Some(prefix) => {
            let pattern = Pattern::new(&address.key)
                .map_err(|error| UsageError(format!("{arg}: {error}")))?;
            let keys = listed(&store, &address, prefix, arg)?;
            let matches = |key: &String| pattern.matches_with(key, MATCHING);
            some_of(keys.into_iter().filter(matches), &address, || {
                format!("{arg}: no object matches")
            })?
        }
        None if address.is_prefix() => {
            let keys = listed(&store, &address, &address.key, arg)?;
            let below = |key: &String| key.strip_prefix(&*address.key).unwrap_or(key).to_owned();
            let takes = |key: &String| names.takes(Path::new(&below(key)));
            let but = if names.is_empty() { "" } else { " that --include and --exclude let pass" };
            some_of(keys.into_iter().filter(takes), &address, || {
                format!("{arg}: no object below this prefix{but}")
            })?
        }
        None => vec![address],
    };
    let open = |index: usize| source(&store, &addresses[index], format);
    each_of(OPENING_THREADS, addresses.len(), open)
}

/// The number of threads that read the starts or the ends of these sources.
pub(super) fn opening_threads(sources: &[Source]) -> usize {
    if sources.iter().any(Source::is_object) { OPENING_THREADS } else { 1 }
}

/// Calls `make` for 0..count on this many threads, and returns the results in order.
///
/// # Errors
///
/// The error for the lowest number.
pub(super) fn each_of<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let made: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::default()).collect();
    let work = |(): &mut (), index: usize| {
        *lock(&made[index]) = Some(make(index)?);
        Ok(())
    };
    run_tasks(threads, count, || Ok(()), work, Ok)?;
    let take = |made: Mutex<Option<T>>| made.into_inner().expect("threads are done");
    Ok(made.into_iter().map(|made| take(made).expect("all were made")).collect())
}

/// The objects whose keys have a prefix. Keys that end in a slash are left out: some tools mark directories
/// with them.
fn listed(
    store: &ObjectStore,
    address: &ObjectAddress,
    prefix: &str,
    arg: &str,
) -> Result<Vec<String>> {
    let keys = store.list(address, prefix).with_context(|| format!("{arg}: cannot list"))?;
    Ok(keys.into_iter().filter(|key| !key.ends_with('/')).collect())
}

fn some_of(
    keys: impl Iterator<Item = String>,
    address: &ObjectAddress,
    complaint: impl Fn() -> String,
) -> Result<Vec<ObjectAddress>> {
    let addresses: Vec<_> = keys.map(|key| address.with_key(key)).collect();
    if addresses.is_empty() {
        return Err(UsageError(complaint()).into());
    }
    Ok(addresses)
}

fn source(store: &Arc<ObjectStore>, address: &ObjectAddress, format: FormatRule) -> Result<Source> {
    let name = address.to_string();
    let (object, head) = store.open(address).with_context(|| format!("{name}: cannot read"))?;
    let key = Path::new(&address.key);
    let (compression, by_content) = detected(&head, key);
    let by_name = Format::from_name(key);
    let format = format.format_of(by_content, by_name);
    let (bytes, absolute) = (object.bytes(), PathBuf::from(&name));
    let location = Location::Object(Arc::new(object));
    let source = Source::new(name, address.path(), bytes, (compression, format), location);
    Ok(Source { identity: Some(absolute.clone()), absolute, ..source })
}
