//! Ports for tests whose servers have a port before they listen on it, or keep it while they are down.

use std::fs::File;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// Below the range from which systems take ports of outgoing connections and of listeners that leave the choice to
/// them, since these could take the port of a server that is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// The lock files of the ports of this process, by which concurrent test programs see them, and a counter
/// for the next draw.
static TAKEN: Mutex<(Vec<File>, u32)> = Mutex::new((Vec::new(), 0));

/// A port on which nobody listens; no other test program gets it while this one runs.
///
/// # Panics
///
/// If the folder of the lock files cannot be written.
pub fn free_port() -> u16 {
    let folder = std::env::temp_dir().join("umbel-test-ports");
    std::fs::create_dir_all(&folder).expect("the folder of the lock files can be made");
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // Programs start at different ports, so that they rarely try the same one.
        let draw = std::process::id().wrapping_mul(97).wrapping_add(taken.1);
        taken.1 += 1;
        let offset = draw % u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(offset).expect("it is below the number of ports");
        let lock = File::create(folder.join(port.to_string())).expect("a lock file can be made");
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            taken.0.push(lock);
            return port;
        }
    }
}
