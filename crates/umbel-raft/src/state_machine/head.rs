//! The head of a snapshot: the kind of group, and the meta group's state as each version of the cluster
//! encodes it.

use std::io;

use serde::{Deserialize, Serialize};
use umbel_engine::meta::{ClusterVersion, MetaSince3, MetaState};
use umbel_engine::shard::{MergeMarks, ShardSnapshotHead};
use umbel_ports::encoding::{decode, encode};

use super::invalid;

/// First record of a snapshot's body: the kind of group and its state.
#[derive(Serialize, Deserialize)]
pub(super) enum Head {
    /// The meta group's state in a cluster of version 1.
    Meta(Box<MetaState>),
    Shard(Box<ShardSnapshotHead>),
    /// The meta group's state in a cluster of any later version, encoded as that version defines. A
    /// node that cannot decode it can still report which version it needs.
    MetaAt(ClusterVersion, Vec<u8>),
    /// A shard that has ended, or has absorbed others. Since version 3 of the cluster.
    MarkedShard(Box<ShardSnapshotHead>, MergeMarks),
}

/// The first version whose snapshots contain [`MetaSince3`] behind the state.
const SINCE_3: ClusterVersion = ClusterVersion(3);

impl Head {
    pub(super) fn of_meta(state: &MetaState) -> Self {
        match state.version() {
            ClusterVersion::FIRST => Self::Meta(Box::new(state.clone())),
            version if version < SINCE_3 => Self::MetaAt(version, encode(state).to_vec()),
            version => Self::MetaAt(version, encode(&(state, state.since_3())).to_vec()),
        }
    }

    pub(super) fn of_shard(head: ShardSnapshotHead) -> Self {
        let marks = head.marks().clone();
        if marks.are_none() {
            Self::Shard(Box::new(head))
        } else {
            Self::MarkedShard(Box::new(head), marks)
        }
    }
}

/// The meta group's state from the bytes of [`Head::MetaAt`].
pub(super) fn meta_at(version: ClusterVersion, bytes: &[u8]) -> io::Result<MetaState> {
    let state: MetaState = if version < SINCE_3 {
        decode(bytes).map_err(invalid)?
    } else {
        let (state, since_3): (MetaState, MetaSince3) = decode(bytes).map_err(invalid)?;
        state.with_since_3(since_3).map_err(invalid)?
    };
    Ok(state.at_version(version))
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::MetaCommand;
    use umbel_engine::{NodeId, ShardId};

    use super::*;

    /// One shard that was split.
    fn split(version: u32) -> MetaState {
        let nodes = vec![(NodeId(1), "n1:1".to_owned())];
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 };
        let formed = |shard| MetaCommand::ShardFormed { shard: ShardId(shard) };
        let mut state = MetaState::new().at_version(ClusterVersion(version));
        for command in [form, formed(0), MetaCommand::SplitShard { shard_count: 2 }, formed(1)] {
            state.apply(1, &command);
        }
        state
    }

    fn decoded(head: Head) -> io::Result<MetaState> {
        match head {
            Head::Meta(state) => Ok(*state),
            Head::MetaAt(version, bytes) => meta_at(version, &bytes),
            Head::Shard(_) | Head::MarkedShard(..) => panic!("it is the meta group's"),
        }
    }

    #[test]
    fn snapshots_of_earlier_versions_keep_their_bytes() {
        let first = split(1);
        let Head::Meta(held) = Head::of_meta(&first) else { panic!("version 1") };
        let bare = encode(&first);
        assert_eq!(encode(&*held), bare);
        let second = split(2);
        let Head::MetaAt(ClusterVersion(2), bytes) = Head::of_meta(&second) else { panic!("2") };
        assert_eq!(bytes, bare);
        // Version 3: two shards of era 0 and no merge are a number, two absent values, and a list of two numbers.
        let Head::MetaAt(ClusterVersion(3), bytes) = Head::of_meta(&split(3)) else { panic!("3") };
        assert_eq!(bytes[..bare.len()], bare);
        let added: Vec<u8> =
            [&[0; 4][..], &[0; 2], &2_u64.to_le_bytes(), &[0; 4], &[0; 4]].concat();
        assert_eq!(bytes[bare.len()..], added);
    }

    #[test]
    fn a_state_is_what_its_snapshot_says() {
        for version in 1..=ClusterVersion::NEWEST.0 {
            let state = split(version);
            assert_eq!(decoded(Head::of_meta(&state)).unwrap(), state);
        }
        let mut state = split(3);
        let merge = MetaCommand::MergeShard { shard_count: 1 };
        let again = [
            merge.clone(),
            MetaCommand::ShardMerged { shard: ShardId(1), era: 0 },
            MetaCommand::SplitShard { shard_count: 2 },
            MetaCommand::ShardFormed { shard: ShardId(1) },
            merge,
        ];
        for command in again {
            state.apply(1, &command);
            assert_eq!(decoded(Head::of_meta(&state)).unwrap(), state, "{command:?}");
        }
        let since_3 = state.since_3();
        assert_eq!((since_3.merge_count, since_3.merging_since), (1, Some(state.epoch())));
    }

    #[test]
    fn a_snapshot_whose_parts_do_not_belong_together_is_refused() {
        let (state, other) = (split(3), MetaState::new());
        for bytes in [encode(&(&state, other.since_3())), encode(&state)] {
            let error = meta_at(ClusterVersion(3), &bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        // And bytes of version 3 are none of version 2.
        assert!(meta_at(ClusterVersion(2), &encode(&(&state, state.since_3()))).is_err());
    }
}
