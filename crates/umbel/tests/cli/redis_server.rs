//! A Redis server for tests, where one is installed.

use crate::sandbox::Sandbox;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use umbel_ports::testing::free_port;

/// Far more than any answer takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A Redis server, which is killed when the test ends.
pub(crate) struct Redis {
    child: Child,
    pub(crate) address: String,
}

impl Redis {
    /// None if Redis is not installed.
    pub(crate) fn start(sandbox: &Sandbox) -> Option<Self> {
        Self::start_on(sandbox, "--port", "")
    }

    /// A server whose port is set by this option, with further options.
    pub(crate) fn start_on(sandbox: &Sandbox, port_option: &str, others: &str) -> Option<Self> {
        let port = free_port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = Command::new("redis-server");
        command.args([port_option, &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(others.split_whitespace());
        command.current_dir(sandbox.path("")).stdout(Stdio::null()).stdin(Stdio::null());
        let child = command.spawn().ok()?;
        let mut redis = Self { child, address: address.to_string() };
        while TcpStream::connect(address).is_err() {
            assert!(redis.child.try_wait().unwrap().is_none(), "redis-server ended");
            std::thread::yield_now();
        }
        Some(redis)
    }

    /// Sends commands, each of which is answered with a number or OK.
    pub(crate) fn tell(&self, lines: &[String]) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{}\r\nQUIT\r\n", lines.join("\r\n")).as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(!said.contains('-'), "{said}");
        assert_eq!(said.lines().count(), lines.len() + 1, "{said}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
