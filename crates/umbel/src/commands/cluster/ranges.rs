//! The hash space with leaders and replicas, drawn:
//!
//! ```text
//! hashes    0000                          ffff
//! node 1    ████████░░░░░░░░████████????????     █ leads
//! node 2    ░░░░░░░░████████▒▒▒▒▒▒▒▒????????     ░ has a replica, ▒ is to have one
//! node 3 !                  ░░░░░░░░????????     ? a replica of a shard without a known leader
//! ```
//!
//! Each box is a share of the hash space. Characters show all that colours show.

use super::look::{Colour, Look};
use umbel_client::StatusResponse;
use umbel_client::proto::ShardStatus;

/// Most columns of the picture; longer lines are hard to follow.
const SPACE_COLUMNS_MAX: usize = 128;

/// Least columns of the picture.
const SPACE_COLUMNS_MIN: usize = 16;

/// The role of a node for a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Nothing,
    Leads,
    Follows,
    /// It is a target of a move, without a replica yet.
    Comes,
    /// It has a replica, and no leader is known.
    Leaderless,
}

impl Role {
    fn of(node: u64, shard: &ShardStatus) -> Self {
        if shard.leader == node {
            Self::Leads
        } else if shard.replicas.contains(&node) {
            if shard.leader == 0 { Self::Leaderless } else { Self::Follows }
        } else if shard.target.contains(&node) {
            Self::Comes
        } else {
            Self::Nothing
        }
    }

    const fn mark(self) -> char {
        match self {
            Self::Nothing => ' ',
            Self::Leads => '█',
            Self::Follows => '░',
            Self::Comes => '▒',
            Self::Leaderless => '?',
        }
    }
}

/// The picture: one line per node that was not removed, and the meaning of its marks; empty if the
/// cluster has no shards.
pub(super) fn picture(status: &StatusResponse, look: Look) -> String {
    if status.shards.is_empty() {
        return String::new();
    }
    let label = |node: u64, is_reachable: bool| {
        if is_reachable { format!("node {node}") } else { format!("node {node} !") }
    };
    let nodes: Vec<_> = status.nodes.iter().filter(|node| node.state != "removed").collect();
    let labels = nodes.iter().map(|node| label(node.node, node.is_reachable).len());
    let label_columns = labels.max().unwrap_or_default().max("hashes".len()) + 2;
    let space_columns = columns(look.columns.saturating_sub(label_columns), status.shards.len());
    let drawn: Vec<&ShardStatus> =
        (0..space_columns).filter_map(|column| shard_at(status, column, space_columns)).collect();

    let ends = space_columns - 8;
    let mut text = format!("{:label_columns$}0000{:ends$}ffff\n", "hashes", "");
    let mut seen = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let name = format!("{:label_columns$}", label(node.node, node.is_reachable));
        let name_colour = if node.is_reachable { Colour::of(number) } else { Colour::ALARM };
        text += &look.paint(name_colour, &name);
        let roles: Vec<Role> = drawn.iter().map(|shard| Role::of(node.node, shard)).collect();
        for run in roles.chunk_by(|a, b| a == b) {
            let role = run[0];
            if !seen.contains(&role) {
                seen.push(role);
            }
            let colour = match role {
                Role::Leads => Colour::of(number),
                Role::Comes => Colour::CHANGE,
                Role::Leaderless => Colour::ALARM,
                Role::Follows | Role::Nothing => Colour::QUIET,
            };
            let marks = role.mark().to_string().repeat(run.len());
            text += &if role == Role::Nothing { marks } else { look.paint(colour, &marks) };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    let is_silent = nodes.iter().any(|node| !node.is_reachable);
    text + &legend(&seen, is_silent, label_columns)
}

/// The meaning of the marks that occur.
fn legend(seen: &[Role], is_silent: bool, label_columns: usize) -> String {
    let meanings = [
        (Role::Leads, "leads"),
        (Role::Follows, "has a replica"),
        (Role::Comes, "is to have one"),
        (Role::Leaderless, "has one, no leader is known"),
    ];
    let seen = meanings.iter().filter(|(role, _)| seen.contains(role));
    let mut parts: Vec<String> =
        seen.map(|(role, means)| format!("{} {means}", role.mark())).collect();
    if is_silent {
        parts.push("! does not answer".to_owned());
    }
    format!("{:label_columns$}{}\n", "", parts.join(", "))
}

/// Columns of the hash space: the same number for each shard, if there is room for all.
fn columns(room: usize, shard_count: usize) -> usize {
    let most = room.clamp(SPACE_COLUMNS_MIN, SPACE_COLUMNS_MAX);
    if shard_count <= most { most / shard_count * shard_count } else { most }.max(SPACE_COLUMNS_MIN)
}

/// The shard whose range contains the middle of a column.
fn shard_at(status: &StatusResponse, column: usize, columns: usize) -> Option<&ShardStatus> {
    let middle = ((2 * column as u128 + 1) << 64) / (2 * columns as u128);
    let middle = u64::try_from(middle).ok()?;
    status.shards.iter().find(|shard| (shard.range_start..=shard.range_last).contains(&middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_client::proto::NodeStatus;

    fn status() -> StatusResponse {
        let node = |node, is_reachable| NodeStatus {
            node,
            is_reachable,
            state: "live".to_owned(),
            ..NodeStatus::default()
        };
        let shard = |shard: u32, leader, replicas: &[u64], target: &[u64]| ShardStatus {
            shard,
            range_start: u64::from(shard) << 62,
            range_last: (u64::from(shard) << 62) + ((1 << 62) - 1),
            leader,
            replicas: replicas.to_vec(),
            target: target.to_vec(),
            ..ShardStatus::default()
        };
        StatusResponse {
            nodes: vec![node(1, true), node(2, true), node(3, false)],
            shards: vec![
                shard(0, 1, &[1, 2], &[]),
                shard(1, 2, &[1, 2], &[2, 3]),
                shard(2, 1, &[1, 3], &[]),
                shard(3, 0, &[2, 3], &[]),
            ],
            ..StatusResponse::default()
        }
    }

    const LOOK: Look = Look { is_for_people: true, has_colours: false, columns: 26 };

    #[test]
    fn every_role_has_its_mark() {
        let expected = "\
hashes    0000        ffff
node 1    ████░░░░████
node 2    ░░░░████    ????
node 3 !      ▒▒▒▒░░░░????
          █ leads, ░ has a replica, ▒ is to have one, ? has one, no leader is known, ! does not answer
";
        assert_eq!(picture(&status(), LOOK), expected);
        assert_eq!(picture(&StatusResponse::default(), LOOK), "");
    }

    #[test]
    fn colours_add_nothing_but_themselves() {
        let painted = picture(&status(), Look { has_colours: true, ..LOOK });
        let mut plain = String::new();
        for part in painted.split('\x1b') {
            plain += match part.strip_prefix('[').and_then(|rest| rest.split_once('m')) {
                Some((_, text)) => text,
                None => part,
            };
        }
        let trimmed: Vec<&str> = plain.lines().map(str::trim_end).collect();
        let expected = picture(&status(), LOOK);
        assert_eq!(trimmed, expected.lines().collect::<Vec<_>>());
        assert!(painted.contains("\x1b[31mnode 3 !"), "{painted}");
    }

    #[test]
    fn a_box_has_as_many_columns_for_each_shard_while_there_is_room() {
        assert_eq!([columns(100, 16), columns(100, 64), columns(20, 64)], [96, 64, 20]);
        assert_eq!([columns(1000, 1), columns(0, 3)], [SPACE_COLUMNS_MAX, SPACE_COLUMNS_MIN]);
    }
}
