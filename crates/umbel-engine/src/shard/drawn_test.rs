//! A shard in dialogues: what its leader proposes for a request, and what its replicas have then.
//!
//! ```text
//! 0: create 1 single-shot           shard 0 gets a slice of filter 1: of 16 positions
//! 0: insert 1@2 3.a 7.b             items as position.rest, at generation 2; without `@`, it is 1
//! 0: insert 1 3.a by 9.1 for 0-15   request 1 of session 9, cut for these positions; else for the shard's
//! 0: remove 2 3.a
//! 0: contains 1 3.a
//! 0: clear 1@2                      starts generation 2
//! 0: union 3 1 2                    filters 1 and 2 into filter 3
//! 0: split 1 8                      positions from 8 on become shard 1
//! 1: fence 0                        shard 1 ends, and becomes part of shard 0
//! 0: absorb 1
//! 0: show
//! ```
//!
//! Every shard has two replicas, and the first one leads. After every entry they are compared.

use std::collections::BTreeMap;
use std::fmt::Write;

use umbel_filter::{CellCount, HashFunction, HashRange, ItemHash, Kind};

use super::{
    Bitmap, HashList, KeyName, PartError, PreparedInsert, PreparedRemove, RequestStamp,
    SetOperation, ShardCommand, ShardReply, ShardState, SliceGrowth, SliceShape, SliceSpec,
};
use crate::drawn_test::check;
use crate::ids::{Epoch, FilterId, Generation, GroupId, OwnerId, RequestId, SessionId, ShardId};

/// Bits of a hash below its position, of which there are 16.
const REST_BITS: u32 = 60;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}`: expected a number"))
}

fn shard_of(text: &str) -> ShardId {
    ShardId(number(text) as u32)
}

/// A filter and its generation, from `1` or `1@2`.
fn filter_of(text: &str) -> (FilterId, Generation) {
    let (filter, generation) = text.split_once('@').unwrap_or((text, "1"));
    (FilterId(number(filter)), Generation(number(generation)))
}

/// The hash of an item, from `3.a`.
fn hash(label: &str) -> ItemHash {
    let (position, rest) = label.split_once('.').expect("position.rest");
    let rest = u64::from(rest.as_bytes()[0]);
    ItemHash::new(number(position) << REST_BITS | rest << 52, rest)
}

fn hashes(labels: &[&str]) -> HashList {
    HashList::from_hashes(&labels.iter().map(|label| hash(label)).collect::<Vec<_>>())
}

fn spec(filter: &str, kind: &str) -> SliceSpec {
    let (filter, generation) = filter_of(filter);
    let shape = match kind.parse::<Kind>().unwrap() {
        Kind::SingleShot => SliceShape::SingleShot { position_count: 16 },
        kind => SliceShape::plan(kind, 1_000, 0.01, CellCount::new(1).unwrap()).unwrap(),
    };
    let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 1 };
    SliceSpec { filter, generation, shape, key }
}

/// The items whose bits are set.
fn marked(answer: &Result<Bitmap, PartError>, what: &str, labels: &[&str]) -> String {
    match answer {
        Ok(bits) if bits.count_ones() == 0 => format!("{what}: none"),
        Ok(bits) => {
            let items: Vec<&str> = bits.iter_ones().map(|at| labels[at]).collect();
            format!("{what}: {}", items.join(" "))
        }
        Err(error) => format!("refused: {error}"),
    }
}

fn text_of(reply: &ShardReply, labels: &[&str]) -> String {
    match reply {
        ShardReply::Inserted(answers) => marked(&answers[0], "new", labels),
        ShardReply::Removed(answer) => marked(answer, "removed", labels),
        ShardReply::Merged(Ok(count)) => format!("{count} positions newly set"),
        ShardReply::Done(Ok(())) => "done".to_owned(),
        ShardReply::Merged(Err(error)) | ShardReply::Done(Err(error)) => {
            format!("refused: {error}")
        }
    }
}

/// The replicas of all shards; all shards share one counter of log entries.
struct Shards {
    replicas: BTreeMap<ShardId, [ShardState; 2]>,
    index: u64,
}

impl Shards {
    /// One shard with the whole hash space.
    fn new() -> Self {
        let first = || ShardState::new(ShardId(0), HashRange::WHOLE);
        Self { replicas: BTreeMap::from([(ShardId(0), [first(), first()])]), index: 0 }
    }

    fn play(&mut self, line: &str) -> String {
        let (shard, command) = line.split_once(": ").expect("a shard, then a command");
        let shard = shard_of(shard);
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["create", filter, kind] => {
                self.told(shard, &ShardCommand::CreateSlice(spec(filter, kind)))
            }
            ["insert", filter, ref rest @ ..] => self.insert(shard, filter, rest),
            ["remove", filter, ref rest @ ..] => self.remove(shard, filter, rest),
            ["contains", filter, ref labels @ ..] => {
                let (filter, generation) = filter_of(filter);
                let state = &self.replicas[&shard][0];
                let present = state.contains(filter, generation, &hashes(labels));
                marked(&present, "present", labels)
            }
            ["clear", filter] => {
                let (filter, generation) = filter_of(filter);
                self.told(shard, &ShardCommand::ClearSlice { filter, generation })
            }
            ["union", target, ref sources @ ..] => {
                let (target, generation) = filter_of(target);
                let sources = sources.iter().map(|source| filter_of(source)).collect();
                let operation = SetOperation::Union;
                let command = ShardCommand::MergeSlices { target, generation, sources, operation };
                self.told(shard, &command)
            }
            ["split", into, at] => self.split(shard, shard_of(into), number(at) << REST_BITS),
            ["fence", into] => {
                let into = GroupId::of_shard(shard_of(into));
                self.told(shard, &ShardCommand::Fence { into, since: Epoch(1) })
            }
            ["absorb", from] => self.absorb(shard, shard_of(from)),
            ["show"] => self.show(shard),
            _ => panic!("`{line}`: unknown command"),
        }
    }

    /// Applies an entry on both replicas.
    fn apply(&mut self, shard: ShardId, command: &ShardCommand) -> ShardReply {
        self.index += 1;
        let [leader, follower] = self.replicas.get_mut(&shard).expect("a shard");
        let reply = leader.apply_at(self.index, command);
        assert_eq!(follower.apply_at(self.index, command), reply, "{command:?}");
        assert_eq!(follower.digest(), leader.digest(), "{command:?}");
        reply
    }

    fn told(&mut self, shard: ShardId, command: &ShardCommand) -> String {
        text_of(&self.apply(shard, command), &[])
    }

    /// The items of a request, and its stamp if it has one.
    fn request<'t>(
        &self,
        shard: ShardId,
        words: &'t [&'t str],
    ) -> (&'t [&'t str], Option<RequestStamp>) {
        let Some(at) = words.iter().position(|&word| word == "by") else { return (words, None) };
        let (labels, stamp) = words.split_at(at);
        let (session, sequence) = stamp[1].split_once('.').expect("session.request");
        let id = RequestId { session: SessionId(number(session)), sequence: number(sequence) };
        let cut = match stamp[2..] {
            ["for", range] => {
                let (first, last) = range.split_once('-').expect("first-last");
                let rest: u64 = (1 << REST_BITS) - 1;
                (number(first) << REST_BITS, number(last) << REST_BITS | rest)
            }
            _ => self.replicas[&shard][0].range().bounds(),
        };
        let (digest, owner) = (hashes(labels).digest(), OwnerId(0));
        (labels, Some(RequestStamp { id, acknowledged_below: 0, digest, cut, owner }))
    }

    fn insert(&mut self, shard: ShardId, filter: &str, words: &[&str]) -> String {
        let (filter, generation) = filter_of(filter);
        let (labels, request) = self.request(shard, words);
        let (state, growth) = (&self.replicas[&shard][0], SliceGrowth::ANY);
        match state.prepare_insert(filter, generation, request, hashes(labels), growth) {
            Ok(PreparedInsert::Propose(part)) => {
                let proposed = format!("proposed: {} of {}", part.hashes.len(), labels.len());
                let reply = self.apply(shard, &ShardCommand::Insert(vec![part]));
                format!("{proposed}\n{}", text_of(&reply, labels))
            }
            Ok(PreparedInsert::Answered(answer)) => {
                format!("as answered before\n{}", marked(&Ok(answer), "new", labels))
            }
            Ok(PreparedInsert::AllPresent { item_count }) => {
                format!("proposed: 0 of {item_count}\nnew: none")
            }
            Ok(growing @ PreparedInsert::Growing { .. }) => panic!("{growing:?}"),
            Err(error) => format!("refused: {error}"),
        }
    }

    fn remove(&mut self, shard: ShardId, filter: &str, words: &[&str]) -> String {
        let (filter, generation) = filter_of(filter);
        let (labels, request) = self.request(shard, words);
        let state = &self.replicas[&shard][0];
        match state.prepare_remove(filter, generation, request, hashes(labels)) {
            Ok(PreparedRemove::Propose(part)) => {
                text_of(&self.apply(shard, &ShardCommand::Remove(part)), labels)
            }
            Ok(PreparedRemove::Answered(answer)) => {
                format!("as answered before\n{}", marked(&Ok(answer), "removed", labels))
            }
            Err(error) => format!("refused: {error}"),
        }
    }

    /// Every replica makes the upper half for itself, and then applies the entry.
    fn split(&mut self, shard: ShardId, into: ShardId, at: u64) -> String {
        let command = ShardCommand::Split { into, at };
        let uppers = self.replicas[&shard].each_ref().map(|replica| replica.upper_half(&command));
        if let [Ok(Some(leader)), Ok(Some(follower))] = uppers {
            self.replicas.insert(into, [leader, follower]);
        }
        self.told(shard, &command)
    }

    /// Every replica joins the final state that it has kept.
    fn absorb(&mut self, shard: ShardId, from: ShardId) -> String {
        self.index += 1;
        let [upper, other_upper] = self.replicas[&from].clone();
        let [leader, follower] = self.replicas.get_mut(&shard).expect("a shard");
        let group = GroupId::of_shard(from);
        let reply = leader.absorb(self.index, group, upper);
        assert_eq!(follower.absorb(self.index, group, other_upper), reply);
        assert_eq!(follower.digest(), leader.digest());
        if reply == ShardReply::Done(Ok(())) {
            self.replicas.remove(&from);
        }
        text_of(&reply, &[])
    }

    /// The range and the slices of a shard: of a single-shot one, a sign for every position.
    fn show(&self, shard: ShardId) -> String {
        let state = &self.replicas[&shard][0];
        let (start, last) = state.range().bounds();
        let (first, last) = (start >> REST_BITS, last >> REST_BITS);
        let mut text = format!("{shard}: positions {first} to {last}");
        if let Some(fence) = state.fence() {
            write!(text, ", ended for {}", fence.into).unwrap();
        }
        let probes: Vec<_> = (first..=last).map(|at| ItemHash::new(at << REST_BITS, 0)).collect();
        for (filter, generation) in state.slices() {
            let summary = state.summary(filter).expect("a slice");
            let new_count = summary.new_count;
            write!(text, "\n{filter}, {generation}, {new_count} were new").unwrap();
            let bits = state.contains(filter, generation, &HashList::from_hashes(&probes));
            if let (SliceShape::SingleShot { .. }, Ok(bits)) = (&summary.spec.shape, bits) {
                let sign = |is_set| if is_set { '#' } else { '.' };
                write!(text, ": {}", bits.iter().map(sign).collect::<String>()).unwrap();
            }
        }
        text
    }
}

#[test]
fn drawn_shards_answer_as_drawn() {
    for file in ["inserts", "retries", "removals", "split_and_merge"] {
        let mut shards = Shards::new();
        check(&format!("shard/{file}.txt"), |line| shards.play(line));
    }
}
