//! Converts the frames that a client has from an earlier export.

use umbel_coordinator::transfers::KnownFrames;
use umbel_engine::ShardId;
use umbel_node::export_change::{DIGEST_BYTES, FrameDigests};
use umbel_proto::v1;

use super::invalid;
use crate::errors::Result;

/// The frames that a client has.
pub(crate) fn known_frames(since: v1::ExportSince) -> Result<KnownFrames> {
    let mut frames = KnownFrames::default();
    for v1::KnownFrames { shard, piece_counts, digests } in since.known {
        let shard = ShardId(shard);
        // This limits the frames to the number of digests, whose bytes the message limit bounds.
        if let Some(at) = piece_counts.iter().position(|&count| count == 0) {
            let what = format!("known.piece_counts[{at}] of {shard} is 0, expected at least 1");
            return Err(invalid(what));
        }
        let piece_count: u64 = piece_counts.iter().copied().map(u64::from).sum();
        let (got, expected) = (digests.len() as u64, DIGEST_BYTES as u64 * piece_count);
        if got != expected {
            let what = format!(
                "known.digests of {shard} has {got} bytes for {piece_count} pieces, expected {expected}"
            );
            return Err(invalid(what));
        }
        if !frames.add(shard, FrameDigests { piece_counts, digests }) {
            return Err(invalid(format!("known names {shard} twice, expected each shard once")));
        }
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(known: Vec<v1::KnownFrames>) -> Option<String> {
        known_frames(v1::ExportSince { known }).err().map(|error| error.to_string())
    }

    fn of_shard(shard: u32, piece_counts: &[u32], digest_bytes: usize) -> v1::KnownFrames {
        let digests = vec![7; digest_bytes].into();
        v1::KnownFrames { shard, piece_counts: piece_counts.to_vec(), digests }
    }

    #[test]
    fn frames_without_pieces_and_pieces_without_digests_are_refused() {
        assert_eq!(refusal_of(vec![]), None);
        // A shard that does not exist is accepted.
        assert_eq!(refusal_of(vec![of_shard(0, &[2, 1], 24), of_shard(u32::MAX, &[], 0)]), None);
        for (known, words) in [
            (vec![of_shard(1, &[1, 0], 8)], "known.piece_counts[1] of shard 1 is 0"),
            (vec![of_shard(1, &[2], 15)], "15 bytes for 2 pieces, expected 16"),
            (vec![of_shard(1, &[], 8)], "8 bytes for 0 pieces, expected 0"),
            (vec![of_shard(1, &[u32::MAX; 3], 8)], "for 12884901885 pieces"),
            (vec![of_shard(1, &[1], 8), of_shard(1, &[1], 8)], "names shard 1 twice"),
        ] {
            let refusal_of = refusal_of(known).unwrap();
            assert!(refusal_of.contains(words), "{refusal_of}");
        }
    }
}
