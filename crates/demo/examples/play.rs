//! Runs the demonstration with another program in place of `myriad`: `play PROGRAM JSON`. For its tests.
//!
//! Writes the file `measured` beside the JSON once the memory has been measured; the stand-in waits for it.
#![forbid(unsafe_code)]

use myriad_demo::{DemoError, Options, Verdict};
use myriad_report::EXIT_INTERRUPTED;
use std::io::{self, Stdout, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Standard output, with an eye on the sentence that comes after measuring.
struct Witness {
    out: Stdout,
    measured: PathBuf,
}

impl Write for Witness {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if String::from_utf8_lossy(bytes).contains(" connected in ") {
            std::fs::write(&self.measured, "")?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || arguments.next().expect("play PROGRAM JSON").into();
    let options = Options {
        program: next(),
        json: next(),
        connections: Some(5_000),
        driver: None,
        protocol: None,
        tls: false,
        ping_interval: "300s".into(),
        version: "0.0.0".into(),
        columns: None,
    };
    let mut witness = Witness {
        out: io::stdout(),
        measured: options.json.with_file_name("measured"),
    };
    match myriad_demo::run(&options, &mut witness) {
        Ok(report) => match report.verdict {
            Verdict::ReachedAll => ExitCode::SUCCESS,
            Verdict::Missed(why) => {
                eprintln!("{why}");
                ExitCode::from(1)
            }
        },
        Err(DemoError::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
