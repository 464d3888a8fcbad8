//! `umbel filter contains-any`: finds the first of several filters that has each item.

use super::items::{ItemArgs, ReadBatch};
use super::levels::{LevelArg, read_name};
use crate::exit::Exit;
use crate::printer::{Printer, facts, item_member, print};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use umbel_client::{Client, FirstFilters, PackedBatch, ReadLevel};

/// Arguments of `umbel filter contains-any`.
#[derive(Args)]
pub(super) struct ContainsAnyArgs {
    /// The filters, up to 32, in the order in which they are queried; names with a comma are not possible
    #[arg(value_name = "FILTER,FILTER...")]
    filters: FilterList,
    #[command(flatten)]
    items: ItemArgs,
    /// Print only how many items each filter was the first to have, and how many are absent from all
    #[arg(long)]
    count: bool,
    /// Consistency of results, as for `contains`; all filters must support the level
    #[arg(long, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    level: Option<LevelArg>,
}

/// Names of filters in one argument, separated by commas, so that items can follow.
#[derive(Clone)]
struct FilterList(Vec<String>);

impl From<String> for FilterList {
    fn from(text: String) -> Self {
        Self(text.split(',').map(str::to_owned).collect())
    }
}

/// Counts of the answers.
struct Counts {
    /// For each filter, the items that it is the first to have.
    firsts: Vec<u64>,
    absent: u64,
    level: ReadLevel,
}

impl ContainsAnyArgs {
    /// Queries the filters, and prints a line per item, or the counts.
    ///
    /// # Errors
    ///
    /// If a call to the cluster fails, items cannot be read, or standard output cannot be written.
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<Exit> {
        let level = self.level.map_or(ReadLevel::Unspecified, LevelArg::level);
        let filters: Vec<&str> = self.filters.0.iter().map(String::as_str).collect();
        let (mut batches, mut is_begun) = (self.items.read()?, false);
        let mut printer = Printer::new();
        let mut counts = Counts { firsts: vec![0; filters.len()], absent: 0, level };
        while let Some(batch) = batches.recv().await {
            is_begun = true;
            let ReadBatch { items, .. } = batch?;
            let found = client.contains_any(&filters, items.clone(), level).await?;
            counts.add(&found);
            if !self.count {
                self.print_each(&items, &found, &mut printer, json)?;
                // Flushed per batch: with slow input, the answers must not wait in the buffer.
                printer.flush()?;
                if printer.is_closed() {
                    break;
                }
            }
        }
        if !is_begun {
            // Without items, a misspelt name would go unnoticed.
            for filter in filters {
                let filter = client.filter(filter).sending_empty();
                filter.contains_packed(PackedBatch::new(), level).await?;
            }
        }
        if self.count {
            self.print_count(&counts, json)?;
        }
        // As with grep, code 1 means "absent" and not a failure.
        let is_absent = self.items.is_single() && counts.absent == 1;
        Ok(if is_absent { Exit::No } else { Exit::Done })
    }

    fn print_each(
        &self,
        items: &PackedBatch,
        found: &FirstFilters,
        printer: &mut Printer,
        json: bool,
    ) -> Result<()> {
        for (item, first) in items.iter().zip(found.iter()) {
            let filter = first.and_then(|at| self.filters.0.get(at));
            if json {
                let (name, text) = item_member(item);
                printer.json(&json!({ name: text, "filter": filter }))?;
                continue;
            }
            // Present and absent have a column of their own, because a filter may be called "absent".
            match filter {
                Some(filter) => printer.write(format!("present\t{filter}\t").as_bytes())?,
                None => printer.write(b"absent\t\t")?,
            }
            printer.write(item)?;
            printer.write(&[self.items.end()])?;
        }
        Ok(())
    }

    fn print_count(&self, counts: &Counts, json: bool) -> Result<()> {
        let level = read_name(counts.level);
        let by_filter: Vec<_> = self.filters.0.iter().zip(&counts.firsts).collect();
        let firsts: Vec<_> =
            by_filter.iter().map(|(filter, n)| json!({ "filter": filter, "items": n })).collect();
        let value = json!({ "first": firsts, "absent": counts.absent, "level": level });
        print(json, &value, || {
            let words: Vec<_> =
                by_filter.iter().map(|(filter, n)| (format!("first in {filter}"), **n)).collect();
            let mut lines: Vec<(&str, String)> =
                words.iter().map(|(word, n)| (word.as_str(), n.to_string())).collect();
            lines.push(("absent", counts.absent.to_string()));
            lines.extend(level.map(|level| ("level", level.to_owned())));
            facts(&lines)
        })
    }
}

impl Counts {
    fn add(&mut self, found: &FirstFilters) {
        for first in found.iter() {
            match first.and_then(|at| self.firsts.get_mut(at)) {
                Some(count) => *count += 1,
                None => self.absent += 1,
            }
        }
        self.level = found.level();
    }
}
