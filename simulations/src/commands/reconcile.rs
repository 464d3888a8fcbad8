//! `reconcile`: sessions of set reconciliation, which the other commands have as the profile of that name.

use clap::Subcommand;

use super::{meta, run, sweep};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::profile::Profile;

#[derive(Subcommand)]
pub(super) enum ReconcileCommand {
    /// Make one run of a few dozen sessions
    Run(run::RunArgs),
    /// Run many seeds, each in its own process
    Sweep(sweep::SweepArgs),
    /// Run seeds twice and compare all that was logged, byte for byte
    Meta(meta::MetaArgs),
}

impl ReconcileCommand {
    /// Carries the command out in its profile, whatever other one is named.
    pub(super) fn run(&mut self, limits: Limits) -> anyhow::Result<Exit> {
        match self {
            Self::Run(args) => {
                args.profile = Some(Profile::Reconcile);
                run::run(args, limits)
            }
            Self::Sweep(args) => {
                args.profile = Some(Profile::Reconcile);
                sweep::run(args, limits)
            }
            Self::Meta(args) => {
                args.profile = Profile::Reconcile;
                meta::run(args, limits)
            }
        }
    }

    pub(super) const fn needs_planted_bugs(&self) -> bool {
        match self {
            Self::Run(args) => args.planted.is_some(),
            Self::Sweep(args) => args.planted.is_some(),
            Self::Meta(_) => false,
        }
    }
}
