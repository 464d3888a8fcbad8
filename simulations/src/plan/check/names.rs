//! Validates the names in a plan: its profile, its bug, its rare choices, and the promise that it breaks.

use umbel_ports::Rare;
use umbel_step::planted::Planted;

use super::{Misfit, one_of};
use crate::plan::Plan;
use crate::profile::Profile;
use crate::promises;

impl Plan {
    pub(super) fn check_names(&self) -> Result<(), Misfit> {
        let profiles = Profile::ALL.map(Profile::name);
        is_named("profile", &self.profile, &profiles)?;
        if let Some(planted) = &self.planted {
            let bugs: Vec<&str> = Planted::ALL.iter().map(|bug| bug.name()).collect();
            is_named("planted", planted, &bugs)?;
        }
        let rare: Vec<&str> = Rare::ALL.iter().map(|(_, name)| *name).collect();
        for (index, name) in self.provoked.iter().enumerate() {
            is_named(&format!("provoked[{index}]"), name, &rare)?;
        }
        if let Some(kind) = &self.expect
            && !promises::is_kind(kind)
        {
            let expected = "the name of a promise (simulations/README.md) or \"exceeded\"";
            return Err(Misfit::new("expect", expected, format!("{kind:?}")));
        }
        Ok(())
    }
}

fn is_named(place: &str, name: &str, names: &[&str]) -> Result<(), Misfit> {
    if names.contains(&name) {
        return Ok(());
    }
    Err(Misfit::new(place, one_of(names.iter().copied()), format!("{name:?}")))
}
