//! Source addresses. Each pair of source and destination has one range of ports, so a large crowd needs many sources.

use crate::target::Target;
use myriad_units::{count, counted};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Connections from one source address to one destination, at most; doctor counts with it too.
pub use myriad_doctor::PER_SOURCE_MAX;

/// Connections from one source address when the crowd chooses its own: loopback has addresses to spare, and
/// a range that is less than half full is searched in one or two steps.
const PER_LOOPBACK_SOURCE: u64 = 10_000;

/// Source addresses that are tried before the run: one costs a few microseconds.
const CHECKED_MAX: u64 = 4096;

/// First of the addresses chosen on loopback: away from 127.0.0.1, whose ports other programs use.
const LOOPBACK_FIRST: Ipv4Addr = Ipv4Addr::new(127, 32, 0, 1);
const LOOPBACK_LAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// Where connections come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceChoice {
    /// Chosen here: many addresses of 127.0.0.0/8 for targets on it, the kernel's choice for others.
    #[default]
    Automatic,
    /// These addresses, in turn.
    Ranges(SourceRanges),
}

/// Inclusive ranges of addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRanges(Vec<(IpAddr, IpAddr)>);

/// Why a list of source addresses cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// An item is neither an address, nor `FIRST-LAST`, nor `ADDRESS/PREFIX`.
    Item(String),
    /// An item's last address lies before its first, or they differ in family.
    Order(String),
    /// A target's address is of another family than the sources.
    Family(SocketAddr),
    /// An address does not belong to this machine.
    NotOurs(IpAddr),
    /// More connections than source addresses and ports.
    TooFew {
        /// The destination that gets the most.
        destination: SocketAddr,
        /// Connections to it.
        wanted: u64,
        /// What the sources allow.
        allowed: u64,
        /// What one of them allows.
        each: u64,
        /// What to do about it.
        remedy: Remedy,
    },
}

/// How a crowd gets more ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// No sources were given: `--source-ip`.
    GiveSources,
    /// Too few were given.
    MoreSources,
    /// The target has a loopback address that is alone of its kind (`::1`).
    OtherLoopback,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => write!(
                f,
                "`{item}` is not a source address; write 10.0.0.7, 10.0.0.1-10.0.0.40 or 10.0.0.0/26, several separated by commas"
            ),
            Self::Order(item) => write!(
                f,
                "`{item}` ends before it begins; write the lower address first"
            ),
            Self::Family(target) => {
                write!(
                    f,
                    "the target {target} and the source addresses are of different families; give both as IPv4 or both as IPv6"
                )
            }
            Self::NotOurs(address) => write!(
                f,
                "{address} is not an address of this machine; give addresses that `ip address` lists, or add it to an interface"
            ),
            Self::TooFew {
                destination,
                wanted,
                allowed,
                each,
                remedy,
            } => {
                write!(
                    f,
                    "Source ports allow {} of the {} wanted to {destination}: each source address has one range of them. To get further: ",
                    count(*allowed),
                    count(*wanted)
                )?;
                match remedy {
                    Remedy::GiveSources => {
                        write!(
                            f,
                            "add addresses of this machine with --source-ip ({PER_SOURCE_MAX} connections each), or spread over more target ports"
                        )
                    }
                    Remedy::MoreSources => {
                        write!(
                            f,
                            "give {} addresses or widen net.ipv4.ip_local_port_range",
                            wanted.div_ceil((*each).max(1))
                        )
                    }
                    Remedy::OtherLoopback => write!(
                        f,
                        "connect to 127.0.0.1 instead, which has 16 million source addresses"
                    ),
                }
            }
        }
    }
}

impl std::error::Error for SourceError {}

impl SourceRanges {
    /// Reads a list such as `127.0.1.1-127.0.1.40,10.0.0.0/28,10.1.1.1`. A prefix stands for the addresses of
    /// its network without the first and the last (network and broadcast), unless it has two or fewer.
    ///
    /// # Errors
    /// An item that is none of these.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        text.split(',')
            .map(|item| parse_item(item.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|&(first, last)| range_len(first, last))
            .fold(0, u64::saturating_add)
    }

    /// The first address that no socket of this machine can have, of those that `connections` use.
    ///
    /// A connection from such an address fails with the same error as one without a free port, so this is checked
    /// before the run.
    fn first_not_ours(&self, connections: u64) -> Option<IpAddr> {
        let used = self.count().min(connections).min(CHECKED_MAX);
        let is_ours = |&address: &IpAddr| match UdpSocket::bind((address, 0)) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        };
        (0..used)
            .map(|index| self.nth(index))
            .find(|address| !is_ours(address))
    }

    fn nth(&self, mut index: u64) -> IpAddr {
        for &(first, last) in &self.0 {
            let len = range_len(first, last);
            if index < len {
                return offset(first, index);
            }
            index -= len;
        }
        unreachable!("an index below the count lies in one of the ranges")
    }
}

fn parse_item(item: &str) -> Result<(IpAddr, IpAddr), SourceError> {
    let error = || SourceError::Item(item.to_owned());
    let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| error());
    if let Some((network, prefix)) = item.split_once('/') {
        return network_range(address(network)?, prefix.parse().map_err(|_| error())?)
            .ok_or_else(error);
    }
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (address(first)?, address(last)?),
        None => (address(item)?, address(item)?),
    };
    if first.is_ipv4() != last.is_ipv4() || first > last {
        return Err(SourceError::Order(item.to_owned()));
    }
    Ok((first, last))
}

/// The first and the last host of a network in an address family of `bits` bits. A network of one or two addresses
/// has no network and broadcast address (RFC 3021, RFC 6164).
fn host_range(address: u128, bits: u32, prefix: u32) -> Option<(u128, u128)> {
    let host_bits = bits.checked_sub(prefix)?;
    let hosts = !u128::MAX.checked_shl(host_bits).unwrap_or(0);
    let (first, last) = (address & !hosts, address | hosts);
    Some(if host_bits > 1 {
        (first + 1, last - 1)
    } else {
        (first, last)
    })
}

fn network_range(address: IpAddr, prefix: u32) -> Option<(IpAddr, IpAddr)> {
    match address {
        IpAddr::V4(address) => {
            let (first, last) = host_range(address.to_bits().into(), Ipv4Addr::BITS, prefix)?;
            let host = |bits: u128| u32::try_from(bits).map(Ipv4Addr::from_bits).ok();
            Some((host(first)?.into(), host(last)?.into()))
        }
        IpAddr::V6(address) => {
            let (first, last) = host_range(address.to_bits(), Ipv6Addr::BITS, prefix)?;
            Some((
                Ipv6Addr::from_bits(first).into(),
                Ipv6Addr::from_bits(last).into(),
            ))
        }
    }
}

fn range_len(first: IpAddr, last: IpAddr) -> u64 {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => u64::from(last.to_bits() - first.to_bits()) + 1,
        (IpAddr::V6(first), IpAddr::V6(last)) => u64::try_from(last.to_bits() - first.to_bits())
            .unwrap_or(u64::MAX - 1)
            .saturating_add(1),
        _ => unreachable!("a range is of one family"),
    }
}

fn offset(first: IpAddr, index: u64) -> IpAddr {
    match first {
        IpAddr::V4(first) => {
            let index = u32::try_from(index).expect("an IPv4 range has at most 2^32 addresses");
            Ipv4Addr::from_bits(first.to_bits() + index).into()
        }
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(index)).into(),
    }
}

/// The source addresses of a run, checked to suffice.
#[derive(Clone, Debug)]
pub(crate) enum Sources {
    /// The kernel's choice.
    Kernel,
    /// `count` loopback addresses from [`LOOPBACK_FIRST`] on.
    Loopback {
        count: u64,
    },
    Ranges(SourceRanges),
}

impl Sources {
    /// Chooses the sources for `connections`, dealt evenly to `targets`. `port_count` is the size of the kernel's port
    /// range.
    ///
    /// # Errors
    /// They do not suffice, or do not fit the targets.
    pub(crate) fn plan(
        choice: &SourceChoice,
        targets: &[Target],
        connections: u64,
        port_count: u64,
    ) -> Result<Self, SourceError> {
        let (destination, wanted) = busiest(targets, connections);
        let too_few = |allowed, each, remedy| SourceError::TooFew {
            destination,
            wanted,
            allowed,
            each,
            remedy,
        };
        match choice {
            SourceChoice::Ranges(ranges) => {
                let family = ranges.0[0].0.is_ipv4();
                if let Some(target) = targets
                    .iter()
                    .find(|target| target.address.is_ipv4() != family)
                {
                    return Err(SourceError::Family(target.address));
                }
                let each = PER_SOURCE_MAX.min(port_count);
                let allowed = ranges.count().saturating_mul(each);
                if wanted > allowed {
                    return Err(too_few(allowed, each, Remedy::MoreSources));
                }
                if let Some(address) = ranges.first_not_ours(wanted) {
                    return Err(SourceError::NotOurs(address));
                }
                Ok(Self::Ranges(ranges.clone()))
            }
            SourceChoice::Automatic
                if targets.iter().all(|target| is_loopback_v4(target.address)) =>
            {
                let each = PER_LOOPBACK_SOURCE.min(port_count).max(1);
                let count = wanted.div_ceil(each).max(1);
                if count > loopback_count() {
                    return Err(too_few(loopback_count() * each, each, Remedy::GiveSources));
                }
                Ok(Self::Loopback { count })
            }
            SourceChoice::Automatic => {
                let allowed = port_count;
                if wanted > allowed {
                    let alone = destination.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST);
                    return Err(too_few(
                        allowed,
                        port_count,
                        if alone {
                            Remedy::OtherLoopback
                        } else {
                            Remedy::GiveSources
                        },
                    ));
                }
                Ok(Self::Kernel)
            }
        }
    }

    /// The source of the `ordinal`-th connection to its target, with a port for the kernel to choose.
    pub(crate) fn of(&self, ordinal: u64) -> Option<SocketAddr> {
        let address = match self {
            Self::Kernel => return None,
            Self::Loopback { count } => nth_loopback(ordinal % count).into(),
            Self::Ranges(ranges) => ranges.nth(ordinal % ranges.count()),
        };
        Some(SocketAddr::new(address, 0))
    }

    /// How many addresses; one where the kernel chooses.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Kernel => 1,
            Self::Loopback { count } => *count,
            Self::Ranges(ranges) => ranges.count(),
        }
    }

    /// In words, for the report.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Kernel => "chosen by the kernel".to_owned(),
            Self::Loopback { count: 1 } => LOOPBACK_FIRST.to_string(),
            Self::Loopback { count } => format!("{count} addresses from {LOOPBACK_FIRST}"),
            Self::Ranges(ranges) => {
                let addresses = counted(ranges.count(), "address");
                format!("{addresses} from {}", ranges.nth(0))
            }
        }
    }
}

fn is_loopback_v4(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback())
}

/// Addresses from [`LOOPBACK_FIRST`] on whose last byte is neither 0 nor 255, which some tools read as network and
/// broadcast.
fn nth_loopback(index: u64) -> Ipv4Addr {
    let (block, last) = (index / 254, index % 254);
    let bits = u64::from(LOOPBACK_FIRST.to_bits()) + block * 256 + last;
    Ipv4Addr::from_bits(u32::try_from(bits).expect("the plan stays inside 127.0.0.0/8"))
}

fn loopback_count() -> u64 {
    u64::from(LOOPBACK_LAST.to_bits() - LOOPBACK_FIRST.to_bits()) / 256 * 254
}

/// The destination with the most connections, and how many. Targets may share one.
fn busiest(targets: &[Target], connections: u64) -> (SocketAddr, u64) {
    let mut targets_of = BTreeMap::new();
    for target in targets {
        *targets_of.entry(target.address).or_insert(0_u64) += 1;
    }
    let per_target = connections.div_ceil(targets.len() as u64);
    let (&destination, &count) = targets_of
        .iter()
        .max_by_key(|&(_, &count)| count)
        .expect("a run has at least one target");
    (destination, (per_target * count).min(connections))
}

/// How many connections to plan sources for where clients come back elsewhere. One destination may be gone: then each other one gets
/// destinations / (destinations - 1) of its share.
pub(crate) fn with_one_gone(targets: &[Target], connections: u64) -> u64 {
    let destinations: BTreeSet<_> = targets.iter().map(|target| target.address).collect();
    let destinations = destinations.len() as u64;
    if destinations < 2 {
        return connections;
    }
    connections
        .saturating_mul(destinations)
        .div_ceil(destinations - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn targets(urls: &[&str]) -> Vec<Target> {
        urls.iter().map(|url| Target::parse(url).unwrap()).collect()
    }

    fn ranges(text: &str) -> SourceChoice {
        SourceChoice::Ranges(SourceRanges::parse(text).unwrap())
    }

    #[test]
    fn lists_of_addresses_ranges_and_networks_are_read() {
        let list = SourceRanges::parse("127.0.1.1-127.0.1.40, 10.0.0.0/28,10.1.1.1").unwrap();
        assert_eq!(list.count(), 40 + 14 + 1);
        assert_eq!(list.nth(0), "127.0.1.1".parse::<IpAddr>().unwrap());
        assert_eq!(list.nth(40), "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(list.nth(54), "10.1.1.1".parse::<IpAddr>().unwrap());
        assert_eq!(SourceRanges::parse("10.0.0.6/31").unwrap().count(), 2);
        assert_eq!(
            SourceRanges::parse("fd00::1-fd00::ff").unwrap().count(),
            255
        );
        assert_eq!(SourceRanges::parse("::/0").unwrap().count(), u64::MAX);
    }

    #[test]
    fn the_clients_of_a_destination_that_is_gone_find_ports_to_the_others() {
        let four: Vec<String> = (0..4)
            .map(|port| format!("ws://127.0.0.1:800{port}/"))
            .collect();
        let four = targets(&four.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(with_one_gone(&four, 40_000), 53_334);
        assert_eq!(with_one_gone(&four, u64::MAX), u64::MAX / 3);
        let one = targets(&["ws://127.0.0.1:8000/a", "ws://127.0.0.1:8000/b"]);
        assert_eq!(with_one_gone(&one, 40_000), 40_000, "there is no other");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for item in ["", "10.0.0", "10.0.0.1-", "10.0.0.0/33", "localhost"] {
            assert_eq!(
                SourceRanges::parse(item),
                Err(SourceError::Item(item.to_owned())),
                "{item}"
            );
        }
        for item in ["10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1"] {
            assert_eq!(
                SourceRanges::parse(item),
                Err(SourceError::Order(item.to_owned())),
                "{item}"
            );
        }
    }

    #[test]
    fn loopback_crowds_choose_addresses_that_suffice_and_avoid_the_first() {
        let targets = targets(&["ws://127.0.0.1:8000/"]);
        let sources = Sources::plan(&SourceChoice::Automatic, &targets, 1_000_000, 28_232).unwrap();
        let mut used: HashMap<IpAddr, u64> = HashMap::new();
        for ordinal in 0..1_000_000 {
            *used.entry(sources.of(ordinal).unwrap().ip()).or_default() += 1;
        }
        assert_eq!(used.len(), 100);
        assert!(used.values().all(|&count| count <= PER_SOURCE_MAX));
        assert!(!used.contains_key(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(used.keys().all(|ip| matches!(ip, IpAddr::V4(ip) if ip.is_loopback() && ![0, 255].contains(&ip.octets()[3]))));
    }

    #[test]
    fn many_loopback_sources_stay_in_their_network() {
        assert_eq!(nth_loopback(253), Ipv4Addr::new(127, 32, 0, 254));
        assert_eq!(nth_loopback(254), Ipv4Addr::new(127, 32, 1, 1));
        assert!(nth_loopback(loopback_count() - 1) <= LOOPBACK_LAST);
    }

    #[test]
    fn targets_that_share_a_destination_share_its_ports() {
        let two = targets(&["ws://127.0.0.1:8000/a", "ws://127.0.0.1:8000/b"]);
        let one_each = ranges("127.0.1.1-127.0.1.2");
        assert!(Sources::plan(&one_each, &two, 50_000, 28_232).is_ok());
        let error = Sources::plan(&one_each, &two, 50_001, 28_232).unwrap_err();
        assert!(error.to_string().contains("give 3 addresses"), "{error}");
        let apart = targets(&["ws://127.0.0.1:8000/a", "ws://127.0.0.1:8001/b"]);
        assert!(Sources::plan(&one_each, &apart, 100_000, 28_232).is_ok());
    }

    #[test]
    fn elsewhere_the_kernel_chooses_until_its_ports_run_out() {
        let far = targets(&["ws://192.0.2.1:80/"]);
        let sources = Sources::plan(&SourceChoice::Automatic, &far, 28_232, 28_232).unwrap();
        assert_eq!(sources.of(7), None);
        let error = Sources::plan(&SourceChoice::Automatic, &far, 28_233, 28_232).unwrap_err();
        assert!(error.to_string().contains("--source-ip"), "{error}");
        let six = targets(&["ws://[::1]:80/"]);
        let error = Sources::plan(&SourceChoice::Automatic, &six, 30_000, 28_232).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }

    #[test]
    fn a_narrow_range_of_ports_allows_no_more_than_it_has() {
        let near = targets(&["ws://127.0.0.1:8000/"]);
        let one = ranges("127.0.1.1");
        assert!(Sources::plan(&one, &near, 2_000, 2_000).is_ok());
        let error = Sources::plan(&one, &near, 5_000, 2_000).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("Source ports allow 2,000 of the 5,000 wanted to 127.0.0.1:8000:")
                && text.contains("give 3 addresses"),
            "{text}"
        );
        // Left to choose, the crowd takes more of them.
        let chosen = Sources::plan(&SourceChoice::Automatic, &near, 5_000, 2_000).unwrap();
        assert_eq!(chosen.count(), 3);
    }

    #[test]
    fn families_do_not_mix() {
        let error = Sources::plan(
            &ranges("10.0.0.1"),
            &targets(&["ws://[::1]:80/"]),
            1,
            28_232,
        )
        .unwrap_err();
        assert_eq!(error, SourceError::Family("[::1]:80".parse().unwrap()));
    }
}
