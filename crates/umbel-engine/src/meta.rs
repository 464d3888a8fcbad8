//! The meta group: nodes, shard map, catalogue of filters, sessions, job ledger, principals and
//! their quotas.
//!
//! [`MetaState`] is the state that every node has after applying the same log: [`MetaState::apply`]
//! is total and deterministic, and the state is its own snapshot. The group's leader calls
//! [`next_tasks`] repeatedly; it returns the tasks that bring shards and filters to what the state
//! prescribes. Both are pure functions of their arguments.

mod access;
mod apply;
mod auto_split;
mod balance;
mod catalogue;
mod command;
mod controller;
#[cfg(test)]
mod drawn_test;
mod expiry;
mod filter_name;
mod filter_order;
mod filter_orders;
mod filter_record;
mod forecast;
mod growth;
mod job;
mod jobs;
mod join_token;
mod join_tokens;
mod merge;
mod node_record;
mod nodes;
mod principal;
mod quota;
mod quota_check;
mod raising;
mod removal;
mod rename;
mod reply;
mod session_key;
mod sessions;
mod settings;
mod since_3;
mod state;
mod stranded_jobs;
#[cfg(test)]
mod testing;
mod version;
mod weights;

pub use access::PRINCIPAL_COUNT_MAX;
pub use auto_split::{CORE_COUNT_MAX, next_split, pause_after_split, shards_for_cores};
pub use balance::next_move;
pub use command::MetaCommand;
pub use controller::{
    GroupView, SHARD_MOVES_MAX, SLICE_TASKS_PER_SHARD_MAX, SliceDone, SliceProgress, Task,
    forget_finished, next_tasks,
};
pub use filter_name::{FilterName, FilterNameError};
pub use filter_order::{FilterChange, FilterOrder, SeenExpiry};
pub use filter_record::{FilterRecord, FilterState};
pub use forecast::{MoveCause, ShardMove, forecast_moves, moves_under_way};
pub use job::{JobEnd, JobOrder, JobRecord, JobSecret, JobState};
pub use join_token::Applicant;
pub use join_tokens::JOIN_TOKEN_COUNT_MAX;
pub use merge::MergeStep;
pub use node_record::NodeRecord;
pub use principal::{
    ClusterVerb, FilterVerb, GRANT_COUNT_MAX, Grant, PRINCIPAL_NAME_BYTES_MAX, Principal,
    PrincipalName, Proof, Rights,
};
pub use quota::{Quota, Rates, Usage};
pub use reply::{MetaError, MetaReply};
pub use session_key::SessionKey;
pub use sessions::SessionStanding;
pub use settings::{Distribution, FilterSettings, HashKey};
pub use since_3::{MetaSince3, MetaSince3Error};
pub use state::{META_VOTERS_MAX, MetaState, NODE_ADDRESS_BYTES_MAX};
pub use version::{ClusterVersion, VersionRange};

/// The result of most functions of this module.
pub(crate) type Result<T, E = MetaError> = std::result::Result<T, E>;
