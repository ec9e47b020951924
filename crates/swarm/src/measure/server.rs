//! What the server uses: its process on this machine, or what it tells of itself.

use crate::clock::Nanos;
use crate::config::Endpoint;
use crate::report::reporting::Reporting;
use crate::request_connection::RequestTls;
use myriad_report::ServerSample;
use myriad_usage::{Footprint, cpu_s};
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// How often a server is asked, and how long it may take.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a whole answer may take. Each of its bytes may come in time, and its end never.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Most that is read of an answer: metrics have some 100 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What was read of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Processor time so far, in seconds.
    cpu_s: Option<f64>,
    rss_bytes: Option<u64>,
    connections: Option<u64>,
}

impl Reading {
    fn is_empty(&self) -> bool {
        self.cpu_s.is_none() && self.rss_bytes.is_none() && self.connections.is_none()
    }
}

/// Watches the server, once a second.
#[derive(Debug)]
pub(crate) struct ServerWatch {
    pid: Option<u32>,
    metrics: Option<Arc<Mutex<Option<Reading>>>>,
    previous: Option<(Nanos, f64)>,
    /// Whether the process could be read at least once.
    is_process_read: bool,
    /// Whether the metrics could.
    is_told: bool,
}

impl ServerWatch {
    /// Whether the watched process could never be read, and whether the watched metrics could not.
    pub(crate) fn unread(&self) -> (bool, bool) {
        let process = self.pid.is_some() && !self.is_process_read;
        (process, self.metrics.is_some() && !self.is_told)
    }

    /// Watches what was asked for. The server's metrics are asked for on a thread of their own, because they may be late.
    ///
    /// # Errors
    /// That thread cannot be started.
    pub(crate) fn start(reporting: &Reporting, tls: RequestTls) -> io::Result<Self> {
        let metrics = match reporting.server_metrics.clone() {
            Some(endpoint) => {
                let metrics = Arc::new(Mutex::new(None));
                let newest = Arc::downgrade(&metrics);
                std::thread::Builder::new()
                    .name("server-metrics".to_owned())
                    .spawn(move || ask(&endpoint, &tls, &newest))?;
                Some(metrics)
            }
            None => None,
        };
        Ok(Self {
            pid: reporting.server_pid,
            metrics,
            previous: None,
            is_process_read: false,
            is_told: false,
        })
    }

    /// Processor seconds of the watched process so far; none if none is watched, or it is gone.
    pub(crate) fn process_cpu_s(&self) -> Option<f64> {
        read_process(self.pid?)?.cpu_s
    }

    /// What is known now; none if nothing is watched or could be read.
    pub(crate) fn sample(&mut self, now: Nanos) -> Option<ServerSample> {
        let told = self.metrics.as_ref().and_then(|metrics| *lock(metrics));
        let read = self.pid.and_then(read_process);
        self.is_process_read |= read.is_some();
        self.is_told |= told.is_some_and(|told| !told.is_empty());
        // The kernel knows best; the server alone knows its connections.
        let reading = Reading {
            connections: told.and_then(|told| told.connections),
            ..read.or(told)?
        };
        let used = reading.cpu_s.map(|cpu_s| (now, cpu_s));
        let before = std::mem::replace(&mut self.previous, used);
        let cpus = used
            .zip(before)
            .and_then(|((now, cpu_s), (since, before))| {
                let elapsed = now.since(since).as_secs_f64();
                // Where the time has fallen, nobody knows what was used meanwhile. The next reading is compared with this lower one.
                (elapsed > 0.0 && cpu_s >= before).then(|| (cpu_s - before) / elapsed)
            });
        Some(ServerSample {
            cpus,
            rss_bytes: reading.rss_bytes,
            connections: reading.connections,
        })
    }
}

fn read_process(pid: u32) -> Option<Reading> {
    let footprint = Footprint::of(pid).ok()?;
    Some(Reading {
        cpu_s: Some(cpu_s(&[pid])),
        rss_bytes: Some(footprint.resident_bytes),
        connections: None,
    })
}

/// How many connections a server says that it has, asked now.
pub(crate) fn connections_at(endpoint: &Endpoint, tls: &RequestTls) -> Option<u64> {
    parse(&answer(endpoint, tls).ok()?).connections
}

/// Asks the server until nobody wants to know any more.
fn ask(endpoint: &Endpoint, tls: &RequestTls, newest: &Weak<Mutex<Option<Reading>>>) {
    while let Some(newest) = newest.upgrade() {
        let told = answer(endpoint, tls).ok().map(|text| parse(&text));
        *lock(&newest) = told;
        drop(newest);
        std::thread::sleep(INTERVAL);
    }
}

/// One answer, as HTTP/1.0 gives it: without chunks, until the connection ends.
fn answer(endpoint: &Endpoint, tls: &RequestTls) -> io::Result<String> {
    let stream = TcpStream::connect_timeout(&endpoint.address, INTERVAL)?;
    stream.set_read_timeout(Some(INTERVAL))?;
    stream.set_write_timeout(Some(INTERVAL))?;
    let Some((name, config)) = endpoint.server_name.clone().zip(tls.clone()) else {
        return answer_over(endpoint, stream);
    };
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    answer_over(endpoint, StreamOwned::new(connection, stream))
}

fn answer_over(endpoint: &Endpoint, mut stream: impl io::Read + io::Write) -> io::Result<String> {
    let (path, host) = (&endpoint.path, &endpoint.host);
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let bytes = read_until(
        stream.take(ANSWER_BYTES_MAX),
        Instant::now() + ANSWER_WITHIN,
    )?;
    // One name of somebody's that is no text must not cost all other figures.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads to the end, if that comes in time.
fn read_until(mut stream: impl io::Read, deadline: Instant) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Sums what is of interest in the text format of Prometheus, over all labels.
fn parse(text: &str) -> Reading {
    let sum = |name: &str| {
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            if !rest.starts_with([' ', '{']) {
                return None;
            }
            // A label's value may hold spaces, what follows the labels may not begin with one.
            let rest = rest.rsplit_once('}').map_or(rest, |(_, rest)| rest);
            rest.split_whitespace().next()?.parse::<f64>().ok()
        });
        values.reduce(|sum, value| sum + value)
    };
    let connections = sum("myriad_connections").or_else(|| sum("centrifugo_node_num_clients"));
    Reading {
        cpu_s: sum("process_cpu_seconds_total"),
        rss_bytes: sum("process_resident_memory_bytes").map(myriad_units::whole),
        connections: connections.map(myriad_units::whole),
    }
}

fn lock(newest: &Mutex<Option<Reading>>) -> MutexGuard<'_, Option<Reading>> {
    newest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_their_labels() {
        let text = "HTTP/1.0 200 OK\r\n\r\n# HELP process_cpu_seconds_total x\n\
                    process_cpu_seconds_total 12.5\nprocess_resident_memory_bytes 1048576\n\
                    myriad_connections{transport=\"raw x\"} 7\nmyriad_connections{transport=\"b\"} 5\n\
                    myriad_connections_max 100\n";
        let reading = parse(text);
        assert_eq!(reading.cpu_s, Some(12.5));
        assert_eq!(reading.rss_bytes, Some(1 << 20));
        assert_eq!(reading.connections, Some(12));
        assert_eq!(parse("nothing").cpu_s, None);
    }

    #[test]
    fn an_answer_that_trickles_is_given_up() {
        let endless = io::repeat(b'x');
        let error = read_until(endless, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(read_until(&b"abc"[..], later).unwrap(), b"abc");
    }

    #[test]
    fn this_process_is_watched_by_its_id() {
        let mut watch = ServerWatch::start(
            &Reporting {
                server_pid: Some(std::process::id()),
                ..Reporting::default()
            },
            None,
        )
        .unwrap();
        assert_eq!(watch.sample(Nanos(0)).unwrap().cpus, None);
        let sample = watch.sample(Nanos(1_000_000_000)).unwrap();
        assert!(sample.cpus.is_some() && sample.rss_bytes.unwrap() > 0);
        assert!(watch.process_cpu_s().is_some());
        assert_eq!(watch.unread(), (false, false));
    }

    #[test]
    fn a_server_that_was_started_again_has_no_share_until_two_readings_are_its_own() {
        let told = Arc::new(Mutex::new(None));
        let mut watch = ServerWatch {
            pid: None,
            metrics: Some(Arc::clone(&told)),
            previous: None,
            is_process_read: false,
            is_told: false,
        };
        let mut cpus = |second: u64, cpu_s: f64| {
            *lock(&told) = Some(Reading {
                cpu_s: Some(cpu_s),
                ..Reading::default()
            });
            let sample = watch.sample(Nanos(second * 1_000_000_000));
            sample.expect("the server tells it").cpus
        };
        assert_eq!(cpus(1, 10.0), None);
        assert_eq!(cpus(2, 10.5), Some(0.5));
        assert_eq!(cpus(3, 0.25), None, "started again");
        assert_eq!(cpus(4, 1.25), Some(1.0));
        assert_eq!(cpus(5, 1.25), Some(0.0), "it rests");
    }

    #[test]
    fn what_could_never_be_read_is_known() {
        // No process has this number: the kernel's are below 2^22.
        let reporting = Reporting {
            server_pid: Some(u32::MAX),
            ..Reporting::default()
        };
        let mut watch = ServerWatch::start(&reporting, None).unwrap();
        assert_eq!(watch.sample(Nanos(0)), None);
        assert_eq!(watch.process_cpu_s(), None);
        assert_eq!(watch.unread(), (true, false));
        assert!(parse("HTTP/1.0 404 Not Found\r\n\r\nnothing here\n").is_empty());
    }
}
