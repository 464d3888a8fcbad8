//! Calls of which one wins if several clients make them at once: `CF.ADDNX` of an item that is absent, and `EXPIREAT` with
//! `LT`. Neither can have a name.

use super::{Batch, Manner};
use crate::counters;
use crate::history::Outcome;
use crate::plan::Op;
use crate::workload::{Clients, item_text};

/// The second from whose beginning turns count down: the first one of the year 2100, which no wall clock of a run reaches.
const LATEST_S: u64 = 4_102_444_800;

impl Clients {
    /// Makes such a call.
    pub(in crate::workload) async fn race_resp(&self, client: u32, via: u32, op: &Op) -> Outcome {
        let batch = Batch { commands: commands(op), manner: Manner::Plain, breaks_off: false };
        let outcome = self.tried(client, via, &batch).await;
        if let Outcome::Done(bits) = &outcome
            && bits.contains(&true)
        {
            let is_expiry = matches!(op, Op::Expire { .. });
            counters::state(if is_expiry { "resp_expiry_set" } else { "resp_new_added" });
        }
        outcome
    }
}

/// Its commands, each with how many items it is about.
fn commands(op: &Op) -> Vec<(Vec<String>, usize)> {
    let of = |words: [&str; 3]| (Vec::from(words.map(str::to_owned)), 1_usize);
    match op {
        Op::AddNew { filter, items } => {
            items.iter().map(|&item| of(["CF.ADDNX", filter, &item_text(item)])).collect()
        }
        Op::Expire { filter, turn } => {
            let at_s = (LATEST_S - u64::from(*turn)).to_string();
            let (mut words, count) = of(["EXPIREAT", filter, &at_s]);
            words.push("LT".to_owned());
            vec![(words, count)]
        }
        _ => unreachable!("its caller makes only these two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_added_by_a_command_each() {
        let words = |op: &Op| -> Vec<String> {
            let commands = commands(op);
            assert!(commands.iter().all(|(_, item_count)| *item_count == 1));
            commands.iter().map(|(words, _)| words.join(" ")).collect()
        };
        let filter = || "f".to_owned();
        let added = words(&Op::AddNew { filter: filter(), items: vec![4, 2] });
        assert_eq!(added, ["CF.ADDNX f item 4", "CF.ADDNX f item 2"]);
        let expires = words(&Op::Expire { filter: filter(), turn: 3 });
        assert_eq!(expires, ["EXPIREAT f 4102444797 LT"]);
    }
}
