//! The machines of a world, whatever runs on them.

use std::io;

use super::World;
use crate::names::host_name;
use crate::net::address_of_number;

impl World {
    /// Adds a machine of this number and runs a program on it, anew after every crash.
    pub(crate) fn run_on<F>(&mut self, number: u32, program: impl Fn() -> F + 'static)
    where
        F: Future<Output = io::Result<()>> + 'static,
    {
        // Addresses are given in the order in which they are asked for, and machines of lower numbers may
        // come later.
        for earlier in 1..number {
            self.sim.lookup(host_name(earlier));
        }
        assert_eq!(self.sim.lookup(host_name(number)), address_of_number(number));
        self.sim.host(host_name(number), move || {
            let running = program();
            async move { Ok(running.await?) }
        });
    }

    /// Kills the program of a machine.
    pub(crate) fn crash(&mut self, number: u32) {
        self.sim.crash(host_name(number));
    }

    /// Starts the program of a machine anew.
    pub(crate) fn bounce(&mut self, number: u32) {
        self.sim.bounce(host_name(number));
    }
}
