//! Items of one or several commands, one behind the other.

use bytes::Bytes;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_node::item_batch::ItemBatch;

/// Items of one or several commands, stored back to back.
#[derive(Default)]
pub(super) struct Packed {
    pub(super) data: Vec<u8>,
    pub(super) lengths: Vec<u32>,
}

impl Packed {
    /// The items behind the first `count`, which stay.
    pub(super) fn split_off(&mut self, count: usize) -> Self {
        let byte_count = self.lengths.iter().take(count).map(|&length| length as usize).sum();
        let lengths = self.lengths.split_off(count.min(self.lengths.len()));
        Self { data: self.data.split_off(byte_count), lengths }
    }

    pub(super) fn into_batch(self) -> ItemBatch {
        ItemBatch::packed(self.data.into(), self.lengths)
    }

    /// Splits the items into batches of a size that the service accepts.
    pub(super) fn batches(self) -> impl Iterator<Item = ItemBatch> {
        let mut data = Bytes::from(self.data);
        let lengths = self.lengths;
        let mut at = 0;
        std::iter::from_fn(move || {
            let count = (lengths.len() - at).min(REQUEST_ITEMS_MAX);
            let batch = lengths.get(at..at + count).filter(|batch| !batch.is_empty())?.to_vec();
            at += count;
            let byte_count = batch.iter().map(|&length| length as usize).sum();
            Some(ItemBatch::packed(data.split_to(byte_count), batch))
        })
    }
}
