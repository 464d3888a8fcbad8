//! Calls that clients of the Redis protocol make at once: `CF.ADDNX` of an item that is absent, `EXPIREAT` with `LT` and `DEL`,
//! of which one wins, `CF.ADD` and `CF.DEL`, which count, and those about a filter whose time passes. None has a name.

use super::{Batch, Manner};
use crate::counters;
use crate::history::Outcome;
use crate::plan::Op;
use crate::seed::true_wall_ms;
use crate::workload::{Clients, item_text};

/// The second from whose beginning turns count down: the first one of the year 2100, which no wall clock of a run reaches.
const LATEST_S: u64 = 4_102_444_800;

/// Capacity and rate of false positives of a filter that is created because it is missing: hardly any item that went with
/// another filter is taken for one of its own.
const NEW_FILTER: [&str; 2] = ["400", "0.000001"];

impl Clients {
    /// Makes such a call.
    pub(in crate::workload) async fn race_resp(&self, client: u32, via: u32, op: &Op) -> Outcome {
        let asks = matches!(op, Op::AskVia { .. });
        let manner = if asks { Manner::Queries { any: false } } else { Manner::Plain };
        let stays = op.is_of_one_node();
        let batch = Batch { commands: commands(op), manner, breaks_off: false, stays };
        let outcome = self.tried(client, via, &batch).await;
        if let Outcome::Done(bits) = &outcome
            && bits.contains(&true)
        {
            state_of(op).into_iter().for_each(counters::state);
        }
        match (op, outcome) {
            // That a copy was added says nothing about the item.
            (Op::AddOne { .. }, Outcome::Done(_)) => Outcome::Done(Vec::new()),
            (_, outcome) => outcome,
        }
    }
}

/// The state that is reached if one of its commands is answered 1.
const fn state_of(op: &Op) -> Option<&'static str> {
    match op {
        Op::AddNew { .. } => Some("resp_new_added"),
        Op::Expire { .. } => Some("resp_expiry_set"),
        Op::Take { .. } => Some("resp_taken"),
        Op::DeleteOne { .. } => Some("resp_copy_deleted"),
        Op::ExpireIn { .. } => Some("resp_time_set"),
        _ => None,
    }
}

/// Its commands, each with how many answers it has.
fn commands(op: &Op) -> Vec<(Vec<String>, usize)> {
    let of = |words: &[&str]| (words.iter().map(|&word| word.to_owned()).collect(), 1_usize);
    let each = |word: &str, filter: &str, items: &[u32]| {
        items.iter().map(|&item| of(&[word, filter, &item_text(item)])).collect()
    };
    match op {
        Op::AddNew { filter, items } => each("CF.ADDNX", filter, items),
        Op::AddOne { filter, items } => each("CF.ADD", filter, items),
        Op::DeleteOne { filter, items } => each("CF.DEL", filter, items),
        Op::Expire { filter, turn } => {
            let at_s = (LATEST_S - u64::from(*turn)).to_string();
            vec![of(&["EXPIREAT", filter, &at_s, "LT"])]
        }
        Op::Take { filter } => vec![of(&["DEL", filter])],
        Op::ExpireIn { filter, in_ms } => {
            vec![of(&["PEXPIREAT", filter, &(true_wall_ms() + in_ms).to_string()])]
        }
        Op::AddVia { filter, items } => {
            let [capacity, rate] = NEW_FILTER;
            let add = |&item: &u32| {
                let text = item_text(item);
                of(&["BF.INSERT", filter, "CAPACITY", capacity, "ERROR", rate, "ITEMS", &text])
            };
            items.iter().map(add).collect()
        }
        Op::AskVia { filter, items } => each("BF.EXISTS", filter, items),
        _ => unreachable!("its caller makes only these"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now::set_now_us;

    #[test]
    fn each_item_has_a_command() {
        let words = |op: &Op| -> Vec<String> {
            let commands = commands(op);
            assert!(commands.iter().all(|(_, answer_count)| *answer_count == 1));
            commands.iter().map(|(words, _)| words.join(" ")).collect()
        };
        let (filter, items) = (|| "f".to_owned(), vec![4, 2]);
        let added = words(&Op::AddNew { filter: filter(), items: items.clone() });
        assert_eq!(added, ["CF.ADDNX f item 4", "CF.ADDNX f item 2"]);
        let added = words(&Op::AddOne { filter: filter(), items: items.clone() });
        assert_eq!(added, ["CF.ADD f item 4", "CF.ADD f item 2"]);
        let deleted = words(&Op::DeleteOne { filter: filter(), items });
        assert_eq!(deleted, ["CF.DEL f item 4", "CF.DEL f item 2"]);
        let expires = words(&Op::Expire { filter: filter(), turn: 3 });
        assert_eq!(expires, ["EXPIREAT f 4102444797 LT"]);
        assert_eq!(words(&Op::Take { filter: filter() }), ["DEL f"]);
        let added = words(&Op::AddVia { filter: filter(), items: vec![4] });
        assert_eq!(added, ["BF.INSERT f CAPACITY 400 ERROR 0.000001 ITEMS item 4"]);
        let asked = words(&Op::AskVia { filter: filter(), items: vec![4, 2] });
        assert_eq!(asked, ["BF.EXISTS f item 4", "BF.EXISTS f item 2"]);
        set_now_us(2_000);
        let expires = words(&Op::ExpireIn { filter: filter(), in_ms: 500 });
        assert_eq!(expires, ["PEXPIREAT f 1767225600502"]);
    }
}
