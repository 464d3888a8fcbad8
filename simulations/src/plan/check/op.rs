//! Validates operations: their clients, nodes, filters and items.

use std::collections::BTreeMap;

use super::{Misfit, PLAN_LIMITS, in_range, one_of};
use crate::plan::{Op, Plan};

impl Plan {
    pub(super) fn check_ops(&self) -> Result<(), Misfit> {
        let names: BTreeMap<&str, bool> =
            self.filters.iter().map(|filter| (&*filter.name, filter.replicated)).collect();
        let node_count = self.node_count();
        for (index, plan) in self.ops.iter().enumerate() {
            // A closure, so that the text is only built for errors: plans have many operations.
            let place = |field: &'static str| format!("ops[{index}].{field}");
            if plan.client >= self.world.clients {
                let range = 0..=self.world.clients - 1;
                in_range(place("client"), plan.client, &range)?;
            }
            if !(1..=node_count).contains(&plan.via) {
                in_range(place("via"), plan.via, &(1..=node_count))?;
            }
            for (field, name) in plan.op.filter_names() {
                let place = || format!("ops[{index}].op.{field}");
                let Some(&replicated) = names.get(name) else {
                    let expected = if names.is_empty() {
                        "no operation without filters".to_owned()
                    } else {
                        one_of(names.keys().copied())
                    };
                    return Err(Misfit::new(place(), expected, format!("{name:?}")));
                };
                if plan.op.is_of_copies().is_some_and(|of_copies| of_copies != replicated) {
                    let expected = if replicated { "a partitioned" } else { "a replicated" };
                    let expected = format!("{expected} filter");
                    return Err(Misfit::new(place(), expected, format!("{name:?}")));
                }
            }
            if let Some(items) = plan.op.items() {
                if !PLAN_LIMITS.op_items.contains(&items.len()) {
                    let place = format!("number of ops[{index}].op.items");
                    in_range(place, items.len(), &PLAN_LIMITS.op_items)?;
                }
                let too_large = items.iter().find(|item| !PLAN_LIMITS.item.contains(item));
                if let Some(item) = too_large {
                    in_range(place("op.items"), *item, &PLAN_LIMITS.item)?;
                }
            }
            if let Op::Insert { copies, .. } = &plan.op {
                in_range(place("op.copies"), *copies, &PLAN_LIMITS.copies)?;
            }
            if let Op::Expire { turn, .. } = &plan.op {
                in_range(place("op.turn"), *turn, &PLAN_LIMITS.turn)?;
            }
            if let Op::ExpireIn { in_ms, .. } = &plan.op {
                in_range(place("op.in_ms"), *in_ms, &PLAN_LIMITS.run_ms)?;
            }
            if let Op::Intersect { sources, .. } = &plan.op {
                in_range(place("number of op.sources"), sources.len(), &PLAN_LIMITS.sources)?;
            }
        }
        Ok(())
    }
}

impl Op {
    /// Whether it applies to replicated filters only (true) or to partitioned ones only; `None` if to
    /// both.
    const fn is_of_copies(&self) -> Option<bool> {
        match self {
            Self::Clear { .. } | Self::Create { .. } | Self::Drop { .. } => None,
            Self::InsertCopy { .. } | Self::ContainsCopy { .. } | Self::Flush { .. } => Some(true),
            Self::Insert { .. }
            | Self::Contains { .. }
            | Self::Remove { .. }
            | Self::Rotate { .. }
            | Self::Snapshot { .. }
            | Self::Rename { .. }
            | Self::Merge { .. }
            | Self::Intersect { .. }
            | Self::AddNew { .. }
            | Self::Expire { .. }
            | Self::Take { .. }
            | Self::AddOne { .. }
            | Self::DeleteOne { .. }
            | Self::ExpireIn { .. }
            | Self::AddVia { .. }
            | Self::AskVia { .. } => Some(false),
        }
    }

    /// The filter that does not exist under its name all the time because of this operation.
    pub(crate) const fn passing_name(&self) -> Option<&str> {
        match self {
            Self::Create { filter }
            | Self::Drop { filter }
            | Self::Rename { filter }
            | Self::Take { filter }
            | Self::ExpireIn { filter, .. } => Some(filter.as_str()),
            _ => None,
        }
    }

    /// Whether all its tries go to the node that the plan names.
    pub(crate) const fn is_of_one_node(&self) -> bool {
        matches!(self, Self::AddVia { .. } | Self::AskVia { .. })
    }

    /// The filters that it names, each with the name of its field.
    pub(crate) fn filter_names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let none: &[String] = &[];
        let (filter, sources) = match self {
            Self::Insert { filter, .. }
            | Self::Contains { filter, .. }
            | Self::Remove { filter, .. }
            | Self::Clear { filter }
            | Self::Rotate { filter }
            | Self::Snapshot { filter }
            | Self::Rename { filter }
            | Self::Create { filter }
            | Self::Drop { filter }
            | Self::InsertCopy { filter, .. }
            | Self::ContainsCopy { filter, .. }
            | Self::Flush { filter }
            | Self::AddNew { filter, .. }
            | Self::Expire { filter, .. }
            | Self::Take { filter }
            | Self::AddOne { filter, .. }
            | Self::DeleteOne { filter, .. }
            | Self::ExpireIn { filter, .. }
            | Self::AddVia { filter, .. }
            | Self::AskVia { filter, .. } => (filter, none),
            Self::Merge { filter, source } => (filter, std::slice::from_ref(source)),
            Self::Intersect { filter, sources } => (filter, &sources[..]),
        };
        let sources = sources.iter().map(|name| ("source", name.as_str()));
        [("filter", filter.as_str())].into_iter().chain(sources)
    }

    /// Its items; `None` if it has none.
    pub(crate) fn items(&self) -> Option<&[u32]> {
        match self {
            Self::Insert { items, .. }
            | Self::Contains { items, .. }
            | Self::Remove { items, .. }
            | Self::InsertCopy { items, .. }
            | Self::ContainsCopy { items, .. }
            | Self::AddNew { items, .. }
            | Self::AddOne { items, .. }
            | Self::DeleteOne { items, .. }
            | Self::AddVia { items, .. }
            | Self::AskVia { items, .. } => Some(items),
            _ => None,
        }
    }

    /// Its items, for changes; `None` if it has none.
    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<u32>> {
        match self {
            Self::Insert { items, .. }
            | Self::Contains { items, .. }
            | Self::Remove { items, .. }
            | Self::InsertCopy { items, .. }
            | Self::ContainsCopy { items, .. }
            | Self::AddNew { items, .. }
            | Self::AddOne { items, .. }
            | Self::DeleteOne { items, .. }
            | Self::AddVia { items, .. }
            | Self::AskVia { items, .. } => Some(items),
            _ => None,
        }
    }
}
