//! Which of several filters is the first that has an item.

use umbel_proto::v1::{ContainsAnyRequest, ContainsAnyResponse, Items, PackedItems, ReadLevel};

use crate::caller::{Ask, First, Repeat};
use crate::client::{Client, missing};
use crate::error::ClientError;
use crate::packed_batch::PackedBatch;

/// Which filter of a list is the first that has each item.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirstFilters {
    /// Places in the list, counted from 1; 0 for none. One an item.
    numbers: Vec<u8>,
    level: ReadLevel,
}

impl FirstFilters {
    /// The place in the list, from 0, of the first filter that has the item of this number, truly or
    /// falsely; None if none has it, or behind the last item.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<usize> {
        self.numbers.get(index).and_then(|&number| usize::from(number).checked_sub(1))
    }

    /// The same of every item, in order.
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

    /// What "in none" is worth: the level that was asked for, or the weakest of the filters' own; at
    /// level `Local` nothing is said of what other nodes acknowledged. `Unspecified` if there were no items.
    #[must_use]
    pub const fn level(&self) -> ReadLevel {
        self.level
    }
}

impl Client {
    /// Asks up to 32 filters at once which of them is the first that has each item: a request for each
    /// 65,536 items, however many filters there are. Level `Unspecified` is that of each filter.
    ///
    /// The filters are not asked at one moment: an item that moves from one to another meanwhile may be
    /// found in neither. Replicated ones are those of the node that this client's other calls about
    /// such filters go to.
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
    /// [`ClientError`]; `Refused`, naming the filter, if one is not there or does not have the level.
    /// Nothing is changed.
    pub async fn contains_any(
        &self,
        filters: &[&str],
        items: PackedBatch,
        level: ReadLevel,
    ) -> Result<FirstFilters, ClientError> {
        let target = format!("filters {filters:?}");
        // Where replicated filters are among them, their copies shall be those that hold this client's items.
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::Home };
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let mut found = FirstFilters::default();
        for part in items.into_parts() {
            let item_count = part.item_bytes.len();
            let packed = PackedItems { data: part.data, item_bytes: part.item_bytes };
            let message = ContainsAnyRequest {
                filters: filters.clone(),
                items: Some(Items { packed: Some(packed), ..Items::default() }),
                level: level.into(),
                // The deadline travels in the header of the call.
                timeout_ms: 0,
            };
            let answer = self
                .caller
                .simple(&ask, message, |node, request| async move {
                    node.filters().contains_any(request).await
                })
                .await?;
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
