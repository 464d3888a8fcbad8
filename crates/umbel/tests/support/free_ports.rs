//! Ports for servers that tests start, where the number must be known before the server is there.

use std::fs::File;
use std::net::TcpListener;
use std::sync::Mutex;

/// Ports below those that systems give to outgoing connections: one of those could take the port of a server that is
/// down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Ports of this process, which test programs that run at once see by their locks, and the draw of the next one.
static TAKEN: Mutex<(Vec<File>, u32)> = Mutex::new((Vec::new(), 0));

/// A port that nobody listens on, and that no other test program gives out while this one runs.
pub(crate) fn free_port() -> u16 {
    let folder = std::env::temp_dir().join("umbel-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    let mut taken = TAKEN.lock().unwrap();
    loop {
        // Programs begin at different ports, so that they seldom ask for the same.
        let draw = std::process::id().wrapping_mul(97).wrapping_add(taken.1);
        taken.1 += 1;
        let port = PORTS.start + u16::try_from(draw % u32::from(PORTS.end - PORTS.start)).unwrap();
        let lock = File::create(folder.join(port.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            taken.0.push(lock);
            return port;
        }
    }
}
