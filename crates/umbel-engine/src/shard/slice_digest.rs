//! What a slice contributes to the digest of its shard's state.

use umbel_filter::{AnyFilter, Describe};

use super::digest::Digest;
use super::slice::Slice;

impl Slice {
    /// Adds everything that must be equal on all replicas.
    pub(super) fn push_digest(&self, digest: &mut Digest) {
        digest.push(self.spec.filter.0);
        digest.push(self.spec.generation.0);
        digest.push(self.spec.key.function.into());
        digest.push(self.spec.key.key_id);
        digest.push_bytes(self.filter.shape().to_string().as_bytes());
        digest.push(self.generation.0);
        digest.push(self.new_count);
        digest.push(self.merged_count);
        match &*self.filter {
            AnyFilter::SingleShot(filter) => {
                digest.push(filter.len());
                filter.positions().for_each(|position| digest.push(position));
            }
            AnyFilter::Scalable(filter) => {
                digest.push(filter.levels().len() as u64);
                for level in filter.levels() {
                    digest.push(level.item_count());
                    digest.push_words(level.filter().words());
                }
            }
            AnyFilter::RedisBloom(filter) => {
                digest.push(filter.links().len() as u64);
                for link in filter.links() {
                    digest.push(link.item_count());
                    digest.push_words(link.words());
                }
            }
            AnyFilter::Blocked(filter) => digest.push_words(filter.words()),
            AnyFilter::Classic(filter) => digest.push_words(filter.words()),
            AnyFilter::Partitioned(filter) => digest.push_words(filter.words()),
            AnyFilter::Counting(filter) => digest.push_words(filter.words()),
            AnyFilter::Cuckoo(filter) => digest.push_words(filter.words()),
            AnyFilter::Quotient(filter) => digest.push_words(filter.words()),
            AnyFilter::Aging(filter) => {
                filter.counts().into_iter().for_each(|count| digest.push(count));
                digest.push_words(filter.words());
            }
            AnyFilter::Stable(filter) => {
                filter.counts().into_iter().for_each(|count| digest.push(count));
                digest.push_words(filter.words());
            }
            AnyFilter::Window(filter) => {
                digest.push(filter.oldest());
                digest.push(filter.newest());
                digest.push_words(filter.words());
            }
        }
    }
}
