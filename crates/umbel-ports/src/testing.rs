//! Networks, seeds, ports and recordings for tests, here and above. Compiled for tests and with the feature `testing`.

mod free_ports;
mod memory_net;
pub mod recorded;

pub use free_ports::free_port;
pub use memory_net::{CountingSeed, MemoryNet, ProvingNet};
