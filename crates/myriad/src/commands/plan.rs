//! `myriad plan`: arguments in, exit code out.

mod hop;

use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use hop::hop;
use myriad_layout::{WIDTH_MAX, terminal_columns};
use myriad_plan::{Chain, Hop, Plan, Traffic, render};
use myriad_units::option::Share;
use myriad_units::parse::{bytes, count, duration, rate};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The chain does not carry the connections wanted.
const NOT_ENOUGH: u8 = 1;
/// More is a typing error rather than a plan.
const CONNECTIONS_MAX: u64 = 100_000_000_000;

/// Computes how many connections a chain of machines carries: its weakest hop, what each node needs, and how many nodes
/// more connections need.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: myriad plan -c 1m --hop slb:2 --hop nginx:4,workers=16,worker_connections=100k --hop ingress:5 --hop myriad:3\n\
                  A hop is KIND:NODES[,PARAMETER=VALUE...]; kinds are slb, nginx, ingress and myriad; docs/plan.md lists the parameters.\n\
                  Exit codes: 0 the chain carries the connections, 1 it does not, 104 bad arguments."
)]
pub(crate) struct Arguments {
    /// Connections wanted, such as 50k or 1m
    #[arg(long, short = 'c', value_name = "COUNT", value_parser = connections)]
    connections: u64,
    /// Connections that each client opens
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = connections)]
    connections_per_client: u64,
    /// One hop of the chain, repeated in the order from the clients to the servers [default: myriad, a node for each million connections]
    #[arg(long = "hop", value_name = "HOP", value_parser = hop)]
    hops: Vec<Hop>,
    /// Publications a second to all channels together; 0 for none
    #[arg(long, value_name = "RATE", default_value = "0.1", value_parser = message_rate)]
    message_rate: f64,
    /// Connections that get each publication [default: everybody]
    #[arg(long, value_name = "COUNT", value_parser = connections)]
    audience: Option<u64>,
    /// Payload of a publication
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = message_size)]
    message_size: u64,
    /// Time between two pings of a connection; 0 for none
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = duration)]
    ping_interval: Duration,
    /// Share of the clients that do not read, such as 0.1% or 0
    #[arg(long, value_name = "SHARE", default_value = "0.1%")]
    slow_readers: Share,
    /// Also compute the machines for this many connections; may be repeated [default: 100m]
    #[arg(long, value_name = "COUNT", value_parser = connections)]
    scale_to: Vec<u64>,
    /// Connections in one region of such a larger chain
    #[arg(long, value_name = "COUNT", default_value = "10m", value_parser = connections)]
    region_connections: u64,
    /// NATS servers that keep each publication of a cluster, 1 to 5
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u64).range(1..=5))]
    broker_replicas: u64,
    /// Print JSON [default: a report for people]
    #[arg(long)]
    json: bool,
}

/// Plans, prints, and says by its exit code whether the chain will do.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let scale_to = match arguments.scale_to.as_slice() {
        [] => vec![100_000_000],
        given => given.to_vec(),
    };
    let json = arguments.json;
    let chain = arguments.into_chain();
    if let Err(error) = chain.check() {
        say(format_args!("error: {error}"));
        return ExitCode::from(BAD_ARGUMENTS);
    }
    let plan = Plan::new(&chain, &scale_to);
    let text = if json {
        serde_json::to_string_pretty(&plan).expect("a plan has no maps and no failing parts") + "\n"
    } else {
        render(&plan, terminal_columns(io::stdout()).unwrap_or(WIDTH_MAX))
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever read us has read enough; the answer stands.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(format_args!("error: the plan cannot be written: {error}"));
            ExitCode::FAILURE
        }
        _ if plan.carries => ExitCode::SUCCESS,
        _ => ExitCode::from(NOT_ENOUGH),
    }
}

impl Arguments {
    fn into_chain(self) -> Chain {
        let default = || vec![Hop::myriad(self.connections.div_ceil(1_000_000))];
        Chain {
            connections: self.connections,
            connections_per_client: self.connections_per_client,
            traffic: Traffic {
                messages_per_s: self.message_rate,
                audience: self.audience,
                message_bytes: self.message_size,
                ping_interval_s: (!self.ping_interval.is_zero())
                    .then_some(self.ping_interval.as_secs_f64()),
                slow_share: self.slow_readers.0,
            },
            hops: if self.hops.is_empty() {
                default()
            } else {
                self.hops
            },
            region_connections: self.region_connections,
            broker_replicas: self.broker_replicas,
        }
    }
}

fn connections(text: &str) -> Result<u64, String> {
    match count(text).map_err(|error| error.to_string())? {
        0 => Err("this must be more than zero".to_owned()),
        value if value > CONNECTIONS_MAX => Err(format!("at most {CONNECTIONS_MAX}")),
        value => Ok(value),
    }
}

fn message_rate(text: &str) -> Result<f64, String> {
    const MOST: f64 = 1e9;
    if text == "0" {
        return Ok(0.0);
    }
    match rate(text).map_err(|error| error.to_string())? {
        value if value > MOST => Err("at most 1g a second".to_owned()),
        value => Ok(value),
    }
}

fn message_size(text: &str) -> Result<u64, String> {
    const MOST: u64 = 1 << 30;
    match bytes(text).map_err(|error| error.to_string())? {
        value if value > MOST => Err("at most 1GiB".to_owned()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_ends() {
        assert!(connections("0").unwrap_err().contains("more than zero"));
        assert!(connections("1000g").is_err());
        assert_eq!(message_rate("0"), Ok(0.0));
        assert!(message_rate("2g").is_err());
        assert!(message_size("2GiB").is_err());
    }
}
