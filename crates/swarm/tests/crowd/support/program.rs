//! The servers of `scenarios/servers`, as programs of a test.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server on a port of its own. It ends with its standard input.
pub(crate) struct Program {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts `file` of `scenarios/servers`, which writes its port.
    pub(crate) fn start(interpreter: &str, file: &str, arguments: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/servers");
        let mut process = Command::new(interpreter)
            .arg(folder.join(file))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        Self {
            process,
            address: ([127, 0, 0, 1], port).into(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}
