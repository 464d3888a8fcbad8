//! What each command of the Redis protocol requires of its sender.

use umbel_engine::meta::{ClusterVerb, FilterVerb};

use crate::caller::Need;

/// What a command requires, by its name in the table. A command without an entry requires the
/// administrator's verb.
pub(super) fn need_of(name: &str) -> Need {
    match name {
        "bf.add" | "bf.madd" | "bf.insert" | "umbel.request" | "cf.add" | "cf.addnx"
        | "cf.insert" | "cf.insertnx" | "sadd" | "umbel.addat" | "umbel.merge"
        | "umbel.intersect" => Need::Filter(FilterVerb::Insert),
        "bf.scandump" | "cf.scandump" | "dump" => Need::Filter(FilterVerb::Export),
        "cf.del" => Need::Filter(FilterVerb::Remove),
        "bf.exists" | "bf.mexists" | "bf.card" | "bf.info" | "bf.debug" | "cf.exists"
        | "cf.mexists" | "cf.count" | "cf.info" | "cf.debug" | "cf.compact" | "sismember"
        | "smismember" | "scard" | "umbel.info" | "umbel.estimate" | "umbel.where" | "exists"
        | "touch" | "type" | "ttl" | "memory|usage" | "pttl" | "expiretime" | "pexpiretime"
        | "watch" | "object|encoding" => Need::Filter(FilterVerb::Read),
        "bf.reserve" | "cf.reserve" | "bf.loadchunk" | "cf.loadchunk" | "umbel.create"
        | "umbel.reset" | "umbel.rotate" | "del" | "unlink" | "expire" | "pexpire" | "expireat"
        | "pexpireat" | "persist" | "rename" | "renamenx" | "copy" | "restore" => {
            Need::Filter(FilterVerb::Manage)
        }
        // The cluster remembers a session, which is of use only with a filter.
        "umbel.session" => Need::SomeFilter,
        "hello" | "auth" | "quit" | "reset" => Need::Nothing,
        // They show who the other clients and principals are, or reset numbers that others look at.
        "client|list" | "acl|users" | "config|resetstat" => Need::Cluster(ClusterVerb::Admin),
        // Lists show only what the caller may see; the other commands concern the connection, or reveal
        // no more than a client of a Redis server can find out anyway.
        "keys" | "scan" | "dbsize" | "ping" | "echo" | "select" | "readonly" | "readwrite"
        | "asking" | "multi" | "exec" | "discard" | "info" | "time" | "role" | "wait"
        | "config|get" | "config|set" | "module|list" | "acl|whoami" | "acl|cat" | "command"
        | "unwatch" | "waitaof" => Need::Somebody,
        name if name.starts_with("client|")
            || name.starts_with("command|")
            || name.starts_with("cluster|")
            || name.starts_with("slowlog|")
            || name.starts_with("latency|")
            || name.ends_with("|help") =>
        {
            Need::Somebody
        }
        _ => Need::Cluster(ClusterVerb::Admin),
    }
}

/// What a command requires beside that. Where an item is kept says how its hash begins, which is secret, and which
/// nodes there are: a look at the cluster.
pub(super) fn second_need_of(name: &str) -> Option<Need> {
    (name == "umbel.where").then_some(Need::Cluster(ClusterVerb::Metrics))
}

#[cfg(test)]
mod tests {
    use umbel_resp::table;

    use super::*;

    /// The table of commands and rights of docs/redis.md: the commands of each row, and what it says of them.
    fn documented() -> Vec<(Vec<&'static str>, &'static str)> {
        let docs = include_str!("../../../../docs/redis.md");
        let rows = docs.lines().skip_while(|line| *line != "| commands | right |").skip(2);
        let cells =
            rows.map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
        cells
            .map(|(commands, right)| (commands.split('`').skip(1).step_by(2).collect(), right))
            .collect()
    }

    #[test]
    fn the_documented_rights_are_those_that_commands_require() {
        let rows = documented();
        assert!(rows.len() > 5, "{rows:?}");
        for command in table::all() {
            let leaves = match command.subcommands {
                [] => std::slice::from_ref(command),
                subcommands => subcommands,
            };
            for spec in leaves {
                let name = spec.name.to_uppercase().replace('|', " ");
                let found =
                    rows.iter().find(|(commands, _)| commands.iter().any(|one| **one == *name));
                let right = found.map(|(_, right)| *right);
                match need_of(spec.name) {
                    Need::Filter(verb) => {
                        assert!(
                            right.is_some_and(|right| right.starts_with(verb.name())),
                            "{name}: {right:?}"
                        );
                    }
                    Need::SomeFilter => {
                        assert_eq!(right, Some("any right on some filter"), "{name}");
                    }
                    Need::Cluster(_) => {
                        assert_eq!(right, Some("the cluster's verb admin"), "{name}");
                    }
                    _ => assert_eq!(right, None, "{name}"),
                }
            }
        }
    }

    #[test]
    fn every_command_has_its_need() {
        let mut for_admins = Vec::new();
        for command in table::all() {
            let leaves = match command.subcommands {
                [] => std::slice::from_ref(command),
                subcommands => subcommands,
            };
            for spec in leaves {
                let need = need_of(spec.name);
                if need == Need::Cluster(ClusterVerb::Admin) {
                    for_admins.push(spec.name);
                }
                // Before the client has authenticated.
                let is_for_strangers = spec.flags.contains(&"no_auth");
                assert_eq!(need == Need::Nothing, is_for_strangers, "{}", spec.name);
                let changes =
                    [FilterVerb::Insert, FilterVerb::Remove, FilterVerb::Manage].map(Need::Filter);
                let is_flush = spec.name.starts_with("flush");
                assert_eq!(changes.contains(&need) || is_flush, spec.is_write(), "{}", spec.name);
                // A command that names a filter requires a right on it.
                let is_about_one = matches!(need, Need::Filter(_));
                assert_eq!(
                    spec.keys.is_some() || spec.name == "umbel.request",
                    is_about_one,
                    "{}",
                    spec.name
                );
            }
        }
        let expected = ["client|list", "config|resetstat", "acl|users", "flushdb", "flushall"];
        assert_eq!(for_admins, expected);
        assert_eq!(need_of("flushall"), Need::Cluster(ClusterVerb::Admin));
    }
}
