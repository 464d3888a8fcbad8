//! Conversion of questions and deltas to and from protocol messages.

use bytes::Bytes;
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_proto::v1;
use umbel_replicated_engine::hypercube::{
    Coverage, Cube, Delta, DeltaContent, DeltaQuestion, DistinctSample, NodeSample, Step,
    VersionVector,
};
use umbel_replicated_engine::limits::VERSION_NODES_MAX;

/// A question about a copy, and how much the asking node's samples cover.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CopyQuestion {
    pub(super) question: DeltaQuestion,
    pub(super) samples: VersionVector,
}

/// A delta, and samples.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CopyDelta {
    pub(super) delta: Delta,
    pub(super) samples: Vec<NodeSample>,
}

/// The number of a step in a sweep; all cubes of the same size number their steps alike.
pub(super) fn step_number(cube: Cube, step: Step) -> u32 {
    cube.steps().zip(0..).find(|(other, _)| *other == step).map_or(u32::MAX, |(_, number)| number)
}

/// The step with a number.
pub(super) fn step_at(cube: Cube, number: u32) -> Option<Step> {
    cube.steps().nth(number as usize)
}

pub(super) fn counts_to_proto(version: &VersionVector) -> Vec<v1::NodeCount> {
    version.iter().map(|(node, count)| v1::NodeCount { node: node.0, count }).collect()
}

fn counts_of(field: &str, counts: &[v1::NodeCount]) -> Result<VersionVector, String> {
    if counts.len() > VERSION_NODES_MAX {
        let got = counts.len();
        return Err(format!("{field} has {got} nodes, expected at most {VERSION_NODES_MAX}"));
    }
    Ok(counts.iter().map(|count| (NodeId(count.node), count.count)).collect())
}

pub(super) fn coverage_of(
    complete: &[v1::NodeCount],
    partial: &[v1::NodeCount],
) -> Result<Coverage, String> {
    // The errors name the fields of the messages.
    let (complete, partial) = (counts_of("knows", complete)?, counts_of("may_have", partial)?);
    Ok(Coverage { complete, partial })
}

pub(super) fn question_to_proto(asked: &CopyQuestion) -> v1::CopyQuestion {
    let DeltaQuestion { filter, generation, number, log, version, received } = &asked.question;
    let (received_log, received_sequence) = received.unwrap_or_default();
    v1::CopyQuestion {
        filter: filter.0,
        generation: generation.0,
        number: *number,
        knows: counts_to_proto(version),
        received_log,
        received_sequence,
        log: *log,
        samples: counts_to_proto(&asked.samples),
    }
}

pub(super) fn question_of(message: &v1::CopyQuestion) -> Result<CopyQuestion, String> {
    let received = (message.received_log, message.received_sequence);
    let question = DeltaQuestion {
        filter: FilterId(message.filter),
        generation: Generation(message.generation),
        number: message.number,
        log: message.log,
        version: counts_of("knows", &message.knows)?,
        received: (message.received_log > 0).then_some(received),
    };
    Ok(CopyQuestion { question, samples: counts_of("samples", &message.samples)? })
}

pub(super) fn delta_to_proto(answer: &CopyDelta) -> v1::CopyDelta {
    let Delta { filter, generation, question, content, through, coverage, newest_slice } =
        &answer.delta;
    let sample = |sample: &NodeSample| v1::NodeSample {
        node: sample.node.0,
        since: sample.since,
        count: sample.count,
        hashes: Bytes::from(sample.hashes.to_bytes()),
    };
    v1::CopyDelta {
        filter: filter.0,
        generation: generation.0,
        question: *question,
        is_whole: *content == DeltaContent::Whole,
        log: through.0,
        sequence: through.1,
        knows: counts_to_proto(&coverage.complete),
        may_have: counts_to_proto(&coverage.partial),
        samples: answer.samples.iter().map(sample).collect(),
        newest_slice: *newest_slice,
    }
}

pub(super) fn delta_of(message: &v1::CopyDelta) -> Result<CopyDelta, String> {
    let content = if message.is_whole { DeltaContent::Whole } else { DeltaContent::Changes };
    let delta = Delta {
        filter: FilterId(message.filter),
        generation: Generation(message.generation),
        question: message.question,
        content,
        through: (message.log, message.sequence),
        coverage: coverage_of(&message.knows, &message.may_have)?,
        newest_slice: message.newest_slice,
    };
    let sample = |sample: &v1::NodeSample| {
        let hashes = DistinctSample::from_bytes(&sample.hashes);
        let hashes = hashes.map_err(|error| format!("sample of node {}: {error}", sample.node))?;
        let (node, since, count) = (NodeId(sample.node), sample.since, sample.count);
        Ok::<_, String>(NodeSample { node, since, count, hashes })
    };
    let samples: Result<_, _> = message.samples.iter().map(sample).collect();
    Ok(CopyDelta { delta, samples: samples? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(counts: &[(u64, u64)]) -> VersionVector {
        counts.iter().map(|&(node, count)| (NodeId(node), count)).collect()
    }

    #[test]
    fn messages_come_back() {
        for received in [None, Some((7, 100))] {
            let question = DeltaQuestion {
                filter: FilterId(12),
                generation: Generation(3),
                number: 5,
                log: 99,
                version: version(&[(1, 40), (3, 2)]),
                received,
            };
            let asked = CopyQuestion { question, samples: version(&[(2, 9)]) };
            assert_eq!(question_of(&question_to_proto(&asked)).unwrap(), asked);
        }
        let sliced = [None, Some(0), Some(9)];
        for (content, newest_slice) in
            [DeltaContent::Changes, DeltaContent::Whole, DeltaContent::Whole]
                .into_iter()
                .zip(sliced)
        {
            let delta = Delta {
                filter: FilterId(12),
                generation: Generation(3),
                question: 5,
                content,
                through: (99, 108),
                coverage: Coverage { complete: version(&[(1, 44)]), partial: version(&[(2, 1)]) },
                newest_slice,
            };
            let hashes: DistinctSample = [3, 9].into_iter().collect();
            let sample = NodeSample { node: NodeId(2), since: 0, count: 2, hashes };
            let answer = CopyDelta { delta, samples: vec![sample] };
            assert_eq!(delta_of(&delta_to_proto(&answer)).unwrap(), answer);
        }
    }

    #[test]
    fn steps_have_places() {
        let cube = Cube::new(5).unwrap();
        for (number, step) in (0..).zip(cube.steps()) {
            assert_eq!((step_number(cube, step), step_at(cube, number)), (number, Some(step)));
        }
        assert_eq!(step_at(cube, 4), None);
    }

    #[test]
    fn hostile_messages_are_refused() {
        let many = vec![v1::NodeCount::default(); VERSION_NODES_MAX + 1];
        let question = v1::CopyQuestion { knows: many.clone(), ..Default::default() };
        let error = question_of(&question).unwrap_err();
        assert_eq!(error, "knows has 8193 nodes, expected at most 8192");
        let question = v1::CopyQuestion { samples: many.clone(), ..Default::default() };
        assert!(question_of(&question).is_err());
        let delta = v1::CopyDelta { may_have: many, ..Default::default() };
        assert!(delta_of(&delta).is_err());
        let hashes = Bytes::from_static(&[0; 9]);
        let sample = v1::NodeSample { node: 4, since: 0, count: 1, hashes };
        let delta = v1::CopyDelta { samples: vec![sample], ..Default::default() };
        assert!(delta_of(&delta).unwrap_err().starts_with("sample of node 4: "));
    }
}
