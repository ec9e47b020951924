//! `--hop nginx:4,workers=16,worker_connections=100000`.

use myriad_plan::{Hop, Kind, SlbMode};
use myriad_units::option::Bandwidth;
use myriad_units::parse::{QuantityError, bytes, count};

const NODES_MAX: u64 = 1_000_000;
/// Of counts in a hop: addresses, slots, descriptors. Products of them stay within 64 bits or are cut there.
const COUNT_MAX: u64 = 10_000_000_000;
const BYTES_MAX: u64 = 1 << 50;
const BITS_PER_S_MAX: u64 = 100_000_000_000_000;
const MEMORY_MIN: u64 = 64 << 20;

/// Parameters of every hop.
const MACHINE: &[&str] = &[
    "spare",
    "cores",
    "memory",
    "bandwidth",
    "connections",
    "addresses",
    "ports",
    "endpoints",
    "descriptors",
    "hash_buckets",
];

/// Reads one hop; errors name it and its parameter.
pub(super) fn hop(text: &str) -> Result<Hop, String> {
    let mut parts = text.split(',');
    let head = parts.next().unwrap_or_default();
    let (kind, nodes) = head.split_once(':').unwrap_or((head, "1"));
    let nodes = whole(nodes, NODES_MAX).map_err(|why| format!("hop {kind}: nodes: {why}"))?;
    let mut hop = match kind {
        "slb" => Hop::slb(nodes),
        "nginx" => Hop::nginx(nodes),
        "ingress" => Hop::ingress(nodes),
        "myriad" => Hop::myriad(nodes),
        _ => {
            return Err(format!(
                "hop {kind}: no such kind; write slb, nginx, ingress or myriad, and :NODES, such as nginx:4"
            ));
        }
    };
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!(
                "hop {kind}: {part}: write PARAMETER=VALUE, such as {}",
                example(&hop.kind)
            )
        })?;
        set(&mut hop, name, value).map_err(|why| format!("hop {kind}: {name}: {why}"))?;
    }
    if hop.spare >= hop.nodes {
        return Err(format!(
            "hop {kind}: spare: {} of {} nodes cannot be spare; at least one must carry the connections",
            hop.spare, hop.nodes
        ));
    }
    Ok(hop)
}

/// Parameters only this kind has.
fn own(kind: &Kind) -> &'static [&'static str] {
    match kind {
        Kind::Slb(_) => &["mode"],
        Kind::Nginx(_) | Kind::Ingress(_) => &["workers", "worker_connections", "sndbuf"],
        Kind::Myriad(_) => &["outbound", "buffered", "tls"],
    }
}

/// One of them as it can be written.
fn example(kind: &Kind) -> &'static str {
    match kind {
        Kind::Slb(_) => "mode=nat",
        Kind::Nginx(_) | Kind::Ingress(_) => "workers=2",
        Kind::Myriad(_) => "outbound=1MiB",
    }
}

fn set(hop: &mut Hop, name: &str, value: &str) -> Result<(), String> {
    if !MACHINE.contains(&name) {
        return set_own(&mut hop.kind, name, value);
    }
    match name {
        "spare" if value == "0" => hop.spare = 0,
        "spare" => hop.spare = whole(value, NODES_MAX)?,
        "cores" => hop.cores = Some(whole(value, 4_096)?),
        "memory" => hop.memory_bytes = Some(memory(value)?),
        "bandwidth" => hop.bandwidth_bits_per_s = Some(bandwidth(value)?),
        "connections" => hop.connections_max = Some(whole(value, COUNT_MAX)?),
        "addresses" => hop.addresses = whole(value, NODES_MAX)?,
        "ports" => hop.ports = whole(value, 65_535)?,
        "endpoints" => hop.endpoints = Some(whole(value, COUNT_MAX)?),
        "descriptors" => hop.descriptors = Some(whole(value, COUNT_MAX)?),
        _ => hop.hash_buckets = whole(value, COUNT_MAX)?,
    }
    Ok(())
}

fn set_own(kind: &mut Kind, name: &str, value: &str) -> Result<(), String> {
    match (&mut *kind, name) {
        (Kind::Slb(mode), "mode") => *mode = slb_mode(value)?,
        (Kind::Nginx(nginx) | Kind::Ingress(nginx), "workers") => {
            nginx.workers = match value {
                "auto" => None,
                _ => Some(whole(value, 4_096)?),
            };
        }
        (Kind::Nginx(nginx) | Kind::Ingress(nginx), "worker_connections") => {
            nginx.worker_connections = whole(value, COUNT_MAX)?;
        }
        (Kind::Nginx(nginx) | Kind::Ingress(nginx), "sndbuf") => {
            nginx.send_buffer_bytes = Some(size(value)?);
        }
        (Kind::Myriad(myriad), "outbound") => myriad.outbound_bytes = size(value)?,
        (Kind::Myriad(myriad), "buffered") => myriad.buffered_bytes = Some(size(value)?),
        (Kind::Myriad(myriad), "tls") => {
            myriad.tls = match value {
                "yes" => true,
                "no" => false,
                _ => return Err(format!("`{value}`: write yes or no")),
            };
        }
        (kind, _) => {
            let known: Vec<&str> = own(kind).iter().chain(MACHINE).copied().collect();
            return Err(format!("no such parameter; there are {}", known.join(", ")));
        }
    }
    Ok(())
}

fn slb_mode(text: &str) -> Result<SlbMode, String> {
    match text {
        "dr" => Ok(SlbMode::Dr),
        "nat" => Ok(SlbMode::Nat),
        "fullnat" => Ok(SlbMode::FullNat),
        _ => Err(format!("`{text}` is no mode; write dr, nat or fullnat")),
    }
}

/// A count of at least one.
fn whole(text: &str, most: u64) -> Result<u64, String> {
    match count(text).map_err(|error| error.to_string())? {
        0 => Err(format!("`{text}`: this must be more than zero")),
        value if value > most => Err(format!("`{text}`: this can be at most {most}")),
        value => Ok(value),
    }
}

fn size(text: &str) -> Result<u64, String> {
    match bytes(text).map_err(|error| error.to_string())? {
        0 => Err(format!("`{text}`: this must be more than zero")),
        value if value > BYTES_MAX => Err(format!("`{text}`: this can be at most 1,048,576 GiB")),
        value => Ok(value),
    }
}

/// Memory of a machine. A bare number would be bytes, and is never meant.
fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        value if value < MEMORY_MIN => Err(format!(
            "`{text}`: no machine has so little; write a size with its unit, such as 64GiB"
        )),
        value => Ok(value),
    }
}

/// Bits a second.
fn bandwidth(text: &str) -> Result<u64, String> {
    let Bandwidth(bits_per_s) = text
        .parse()
        .map_err(|error: QuantityError| error.to_string())?;
    if bits_per_s > BITS_PER_S_MAX {
        return Err(format!("`{text}`: this can be at most 100000gbit"));
    }
    Ok(bits_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_plan::Nginx;

    #[test]
    fn a_hop_is_a_kind_nodes_and_parameters() {
        let read =
            hop("nginx:4,workers=16,worker_connections=100k,memory=64GiB,bandwidth=10gbit,spare=1")
                .unwrap();
        assert_eq!(
            read.kind,
            Kind::Nginx(Nginx {
                workers: Some(16),
                worker_connections: 100_000,
                send_buffer_bytes: None,
            })
        );
        assert_eq!((read.nodes, read.spare), (4, 1));
        assert_eq!(read.memory_bytes, Some(64 << 30));
        assert_eq!(read.bandwidth_bits_per_s, Some(10_000_000_000));
        assert_eq!(hop("myriad").unwrap(), Hop::myriad(1));
        assert_eq!(
            hop("slb:2,mode=fullnat").unwrap().kind,
            Kind::Slb(SlbMode::FullNat)
        );
    }

    #[test]
    fn what_an_error_gives_as_an_example_can_be_written() {
        for kind in ["slb", "nginx", "ingress", "myriad"] {
            let error = hop(&format!("{kind}:2,x")).unwrap_err();
            let (_, example) = error.rsplit_once("such as ").expect("an example");
            assert!(hop(&format!("{kind}:2,{example}")).is_ok(), "{error}");
        }
    }

    #[test]
    fn an_error_names_the_hop_the_parameter_and_the_way_out() {
        for (text, parts) in [
            ("ngnix:4", &["hop ngnix", "no such kind", "nginx"][..]),
            ("nginx:0", &["hop nginx", "nodes", "more than zero"]),
            ("nginx:x", &["hop nginx", "nodes", "a number is missing"]),
            (
                "nginx:4,workers",
                &["hop nginx", "workers", "PARAMETER=VALUE"],
            ),
            (
                "nginx:4,worker_conections=5",
                &[
                    "worker_conections",
                    "no such parameter",
                    "worker_connections",
                ],
            ),
            (
                "slb:2,workers=4",
                &["hop slb", "workers", "no such parameter", "mode"],
            ),
            (
                "slb:2,mode=direct",
                &["hop slb", "mode", "`direct`", "dr, nat or fullnat"],
            ),
            (
                "myriad:3,memory=0",
                &["hop myriad", "memory", "more than zero"],
            ),
            (
                "myriad:3,memory=64",
                &["hop myriad", "memory", "such as 64GiB"],
            ),
            (
                "myriad:3,bandwidth=10",
                &["hop myriad", "bandwidth", "10gbit"],
            ),
            ("myriad:3,cores=-1", &["hop myriad", "cores"]),
            (
                "myriad:3,ports=70000",
                &["hop myriad", "ports", "at most 65535"],
            ),
            ("myriad:3,spare=3", &["hop myriad", "spare", "3 of 3"]),
            ("", &["no such kind"]),
        ] {
            let error = hop(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}
