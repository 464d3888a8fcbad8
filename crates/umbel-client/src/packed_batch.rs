//! Items in contiguous memory, as they are sent.

use std::fmt;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::limits::{BATCH_ITEMS_MAX, ITEM_BYTES_MAX, REQUEST_DATA_BYTES_CUT, REQUEST_ITEMS_MAX};

/// An item that cannot be sent. Nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ItemError {
    /// The item is too long: leave it out, or insert a digest of it.
    #[error("item {index} has {item_bytes} bytes, at most {ITEM_BYTES_MAX} are allowed")]
    TooLong {
        /// Its number in the batch, from 0.
        index: usize,
        /// Its length.
        item_bytes: usize,
    },
    /// The batch is full: send it and begin another one.
    #[error("a batch holds at most {BATCH_ITEMS_MAX} items")]
    TooMany,
}

/// A batch of items, packed: a single copy of each item's bytes and four bytes for its length, without an
/// allocation per item.
///
/// To reuse its memory, send the result of [`take`](Self::take) and keep the batch:
///
/// ```
/// use umbel_client::PackedBatch;
///
/// let mut batch = PackedBatch::new();
/// batch.push(b"alice")?;
/// batch.push(b"")?;
/// batch.push(b"bob")?;
/// assert_eq!((batch.len(), batch.data_bytes()), (3, 8));
///
/// let full = batch.take(); // filter.insert_packed(full).await?
/// assert_eq!(full.iter().collect::<Vec<_>>(), [b"alice".as_slice(), b"", b"bob"]);
/// assert!(batch.is_empty());
/// # Ok::<(), umbel_client::ItemError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PackedBatch {
    data: BytesMut,
    item_bytes: Vec<u32>,
}

/// The items of one request of a batch.
#[derive(Default)]
pub(crate) struct PackedPart {
    pub(crate) data: Bytes,
    pub(crate) item_bytes: Vec<u32>,
}

impl PackedBatch {
    /// An empty batch that has allocated nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for this many items and bytes.
    ///
    /// ```
    /// assert!(umbel_client::PackedBatch::with_capacity(100, 1_000).is_empty());
    /// ```
    #[must_use]
    pub fn with_capacity(item_count: usize, data_bytes: usize) -> Self {
        Self {
            data: BytesMut::with_capacity(data_bytes),
            item_bytes: Vec::with_capacity(item_count),
        }
    }

    /// Packs items.
    ///
    /// ```
    /// let batch = umbel_client::PackedBatch::from_items(["a", "bc"])?;
    /// assert_eq!((batch.len(), batch.data_bytes()), (2, 3));
    /// # Ok::<(), umbel_client::ItemError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn from_items<I>(items: I) -> Result<Self, ItemError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let items = items.into_iter();
        let mut batch = Self::with_capacity(items.size_hint().0.min(REQUEST_ITEMS_MAX), 0);
        for item in items {
            batch.push(item.as_ref())?;
        }
        Ok(batch)
    }

    /// Adds an item, which may be empty.
    ///
    /// # Errors
    /// If the item is longer than [`ITEM_BYTES_MAX`], or the batch already has [`BATCH_ITEMS_MAX`] items;
    /// the batch is unchanged then.
    ///
    /// ```
    /// let mut batch = umbel_client::PackedBatch::from_items(["a"])?;
    /// let error = batch.push(&vec![0; (16 << 20) + 1]).unwrap_err();
    /// assert_eq!(error.to_string(), "item 1 has 16777217 bytes, at most 16777216 are allowed");
    /// # Ok::<(), umbel_client::ItemError>(())
    /// ```
    #[inline]
    pub fn push(&mut self, item: &[u8]) -> Result<(), ItemError> {
        let index = self.item_bytes.len();
        if item.len() > ITEM_BYTES_MAX {
            return Err(ItemError::TooLong { index, item_bytes: item.len() });
        }
        if index >= BATCH_ITEMS_MAX {
            return Err(ItemError::TooMany);
        }
        self.data.extend_from_slice(item);
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 MiB")]
        self.item_bytes.push(item.len() as u32);
        Ok(())
    }

    /// Number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.item_bytes.len()
    }

    /// Whether there are no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.item_bytes.is_empty()
    }

    /// Bytes of all items together.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data.len()
    }

    /// Moves the items out. The batch is empty then, and reuses its memory once the requests with these
    /// items are answered.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let room = Vec::with_capacity(self.item_bytes.len());
        Self { data: self.data.split(), item_bytes: std::mem::replace(&mut self.item_bytes, room) }
    }

    /// Removes the items and keeps the memory.
    ///
    /// ```
    /// let mut batch = umbel_client::PackedBatch::from_items(["a"])?;
    /// batch.clear();
    /// assert_eq!(batch.len(), 0);
    /// # Ok::<(), umbel_client::ItemError>(())
    /// ```
    pub fn clear(&mut self) {
        self.data.clear();
        self.item_bytes.clear();
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.data[..];
        self.item_bytes.iter().map(move |&bytes| {
            let (item, tail) = rest.split_at(bytes as usize);
            rest = tail;
            item
        })
    }

    /// Splits the batch into the items of requests, in order; an empty batch gives none.
    pub(crate) fn into_parts(self) -> Vec<PackedPart> {
        self.cut(REQUEST_ITEMS_MAX, REQUEST_DATA_BYTES_CUT)
    }

    fn cut(self, items_max: usize, data_bytes_cut: usize) -> Vec<PackedPart> {
        let mut data = self.data.freeze();
        if self.item_bytes.len() <= items_max && data.len() <= data_bytes_cut {
            let part = PackedPart { data, item_bytes: self.item_bytes };
            return if part.item_bytes.is_empty() { Vec::new() } else { vec![part] };
        }
        let mut parts = Vec::new();
        let mut rest = &self.item_bytes[..];
        while !rest.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < rest.len().min(items_max) {
                let longer = bytes + rest[count] as usize;
                if count > 0 && longer > data_bytes_cut {
                    break;
                }
                (count, bytes) = (count + 1, longer);
            }
            let (lengths, tail) = rest.split_at(count);
            parts.push(PackedPart { data: data.split_to(bytes), item_bytes: lengths.to_vec() });
            rest = tail;
        }
        parts
    }
}

impl fmt::Debug for PackedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedBatch")
            .field("items", &self.len())
            .field("data_bytes", &self.data_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_keep_items_order_and_limits(
            items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..60),
            items_max in 1_usize..10,
            data_bytes_cut in 0_usize..40,
        ) {
            let batch = PackedBatch::from_items(&items).unwrap();
            prop_assert_eq!(batch.iter().collect::<Vec<_>>(), items.clone());
            let mut found: Vec<Vec<u8>> = Vec::new();
            for part in batch.cut(items_max, data_bytes_cut) {
                let count = part.item_bytes.len();
                prop_assert!((1..=items_max).contains(&count));
                prop_assert!(count == 1 || part.data.len() <= data_bytes_cut);
                let mut data = part.data.clone();
                found.extend(part.item_bytes.iter().map(|&b| data.split_to(b as usize).to_vec()));
                prop_assert!(data.is_empty());
            }
            prop_assert_eq!(found, items);
        }
    }

    #[test]
    fn memory_is_used_again() {
        let mut batch = PackedBatch::with_capacity(2, 64);
        let place = batch.data.as_ptr();
        for _ in 0..5 {
            batch.push(&[1; 40]).unwrap();
            let full = batch.take();
            assert_eq!(full.data.as_ptr(), place);
            drop(full.into_parts());
        }
    }
}
