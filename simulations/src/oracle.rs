//! What should have happened: applies the committed log once more, and computes from it what the clients'
//! history may show. `invariants` holds the history against it.
//!
//! | file | what it does |
//! |---|---|
//! | `reference` | applies every group's log to fresh states and compares replicas with them |
//! | `applied` | what an applied entry must not do, computed without the code that applied it |
//! | `view` | the history by filter, with the copies of a request merged into one |
//! | `bits` | which positions an item has, and when each was first set |
//! | `generations` | which generations replicated filters had, and which of them a call may be about |
//! | `rights` | what principals may do, for each version of the catalogue |
//! | `quotas` | what principals and the cluster hold and may hold, entry by entry |
//! | `seen` | texts of refusals, and inserts that no caller had the right to make |
//! | `windows` | what windows contain, computed from the entries of the logs alone |
//! | `last_items` | the last items inserted into aging filters, computed in the same way |
//! | `misses` | how often stable filters may miss items, computed in the same way |
//! | `register` | the exact rule for one item whose answers may be *no* first and *yes* later |

mod answered;
pub(crate) mod applied;
pub(crate) mod bits;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod generations;
pub(crate) mod last_items;
pub(crate) mod misses;
pub(crate) mod quotas;
pub(crate) mod reference;
#[cfg(test)]
mod reference_test;
pub(crate) mod register;
pub(crate) mod rights;
#[cfg(test)]
mod search_test;
pub(crate) mod seen;
pub(crate) mod slice_models;
pub(crate) mod view;
pub(crate) mod windows;
