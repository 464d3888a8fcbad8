//! Limits of a session.

use super::ReconcileArgs;
use std::time::Duration;
use umbel_reconcile::Timeouts;
use umbel_reconcile_engine::Limits;

/// Default time limit of a session that a peer begins, in seconds: enough for a gigabyte of contents at
/// 300 kB/s. A session that is cut off can continue with `--resume`.
const LISTEN_SECONDS_MAX: u64 = 3600;

impl ReconcileArgs {
    pub(super) fn timeouts(&self) -> Timeouts {
        // A listener serves its sessions one after another, so none may block the others forever.
        let whole = self.listen.is_some().then_some(LISTEN_SECONDS_MAX);
        let whole = self.max_time.or(whole).map(Duration::from_secs);
        Timeouts { idle: Duration::from_secs(self.idle_timeout), whole }
    }

    pub(super) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            bytes_max: self.max_bytes.unwrap_or(default.bytes_max),
            diff_max: self.max_diff.unwrap_or(default.diff_max),
            allow_skew: self.allow_skew,
            ..default
        }
    }
}
