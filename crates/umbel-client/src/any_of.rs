//! Queries which of several filters is the first that has an item.

use umbel_proto::v1::{ContainsAnyRequest, ContainsAnyResponse, Items, PackedItems, ReadLevel};

use crate::caller::{CallPolicy, First, Repeat, ask};
use crate::client::{Client, missing};
use crate::error::Result;
use crate::packed_batch::PackedBatch;

/// For each item, the first filter of a list that has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirstFilters {
    /// One number per item: the position in the list, counted from 1; 0 for none.
    numbers: Vec<u8>,
    level: ReadLevel,
}

impl FirstFilters {
    /// The position in the list, from 0, of the first filter that has the item of this number, truly or
    /// falsely; None if none has it, or after the last item.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<usize> {
        self.numbers.get(index).and_then(|&number| usize::from(number).checked_sub(1))
    }

    /// The same for every item, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<usize>> {
        self.numbers.iter().map(|&number| usize::from(number).checked_sub(1))
    }

    /// Number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there were no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// How far "in none" can be trusted: the requested level, or by default the weakest of the filters'
    /// own. At level `Local` it does not cover inserts that other nodes acknowledged. `Unspecified` if
    /// there were no items.
    #[must_use]
    pub const fn level(&self) -> ReadLevel {
        self.level
    }
}

impl Client {
    /// Queries up to 32 filters at once for the first one that has each item, with one request per 65,536
    /// items, however many filters there are. With level `Unspecified`, each filter has its default
    /// level.
    ///
    /// The filters are not read at one moment: an item that moves from one to another meanwhile may be
    /// found in neither. Replicated filters are read on the node that this client uses for replicated
    /// filters otherwise.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use umbel_client::{PackedBatch, ReadLevel};
    ///
    /// let days = ["tuesday", "monday"];
    /// let items = PackedBatch::from_items(["alice"])?;
    /// let found = client.contains_any(&days, items, ReadLevel::Unspecified).await?;
    /// println!("{:?}", found.get(0).map(|at| days[at]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); `Refused`, with the filter's name, if a filter does not exist or does not support
    /// the level. Nothing is changed.
    pub async fn contains_any(
        &self,
        filters: &[&str],
        items: PackedBatch,
        level: ReadLevel,
    ) -> Result<FirstFilters> {
        let target = format!("filters {filters:?}");
        // If some filters are replicated, the home node's copies hold this client's items.
        let policy = CallPolicy { target: &target, repeat: Repeat::Freely, first: First::Home };
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let mut found = FirstFilters::default();
        for part in items.into_parts() {
            let item_count = part.item_bytes.len();
            let packed = PackedItems { data: part.data, item_bytes: part.item_bytes };
            let message = ContainsAnyRequest {
                filters: filters.clone(),
                items: Some(Items { packed: Some(packed), ..Items::default() }),
                level: level.into(),
                // The call's own header carries the deadline.
                timeout_ms: 0,
            };
            let answer = ask!(self, policy, filters.contains_any, message)?;
            let ContainsAnyResponse { first_filters, level } = answer;
            if first_filters.len() != item_count {
                return Err(missing("an entry an item", &target));
            }
            for number in first_filters {
                let number = u8::try_from(number).ok();
                let known = number.filter(|&number| usize::from(number) <= filters.len());
                found.numbers.push(known.ok_or_else(|| missing("a filter of the list", &target))?);
            }
            found.level = ReadLevel::try_from(level).unwrap_or_default();
        }
        Ok(found)
    }
}
