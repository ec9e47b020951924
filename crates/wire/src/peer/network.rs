//! Networks of addresses, such as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses that share their first bits: `192.0.2.0/24`, `2001:db8::/32`, or one address.
///
/// IPv4 addresses that are written as IPv6 ones (`::ffff:192.0.2.1`) are the same as plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// There is no address before the slash.
    Address,
    /// What is behind the slash is no length of a prefix of this address.
    Bits,
    /// The address has bits behind its prefix. The network that has this prefix is named.
    HostBits(Network),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str(
                "write an IP address or a network, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32",
            ),
            Self::Bits => f.write_str(
                "the number behind the slash is 0 to 32 for IPv4, and 0 to 128 for IPv6",
            ),
            Self::HostBits(network) => write!(
                f,
                "the address is inside of a network; write {network}, or the address alone"
            ),
        }
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// The network that has the first `bits` of the address; none if an address has fewer.
    fn of(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits.into())?);
                IpAddr::V4((v4.to_bits() & mask.unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits.into())?);
                IpAddr::V6((v6.to_bits() & mask.unwrap_or(0)).into())
            }
        };
        Some(Self { address, bits })
    }

    /// Whether the network has this address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && Self::of(address, self.bits).is_some_and(|network| network.address == self.address)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| NetworkError::Bits)?
            }
            Some(_) => return Err(NetworkError::Bits),
        };
        let network = Self::of(address, bits).ok_or(NetworkError::Bits)?;
        if network.address != address {
            return Err(NetworkError::HostBits(network));
        }
        // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
        match (address.to_canonical(), bits.checked_sub(96)) {
            (plain @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => Ok(Self {
                address: plain,
                bits,
            }),
            _ => Ok(network),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == width {
            return self.address.fmt(f);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A list of networks. A look at it takes a look at each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Box<[Network]>);

impl Networks {
    /// Whether one of them has this address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.0.iter()
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn has(network: &str, address: &str) -> bool {
        self::network(network).contains(address.parse().expect("an address"))
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        assert!(has("10.0.0.0/8", "10.255.1.2") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.6"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "8.8.8.8"));
        assert!(
            has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1")
        );
        assert!(has("10.0.0.0/31", "10.0.0.1") && !has("10.0.0.0/31", "10.0.0.2"));
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert!(has("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(has("::ffff:10.0.0.0/104", "10.1.2.3") && has("::ffff:10.1.2.3", "10.1.2.3"));
        assert_eq!(network("::ffff:10.0.0.0/104"), network("10.0.0.0/8"));
        assert!(!has("::ffff:10.0.0.0/104", "2001:db8::1"));
    }

    #[test]
    fn what_is_wrong_with_a_network_is_said() {
        for (text, error) in [
            ("", NetworkError::Address),
            ("localhost", NetworkError::Address),
            ("10.0.0.0/33", NetworkError::Bits),
            ("10.0.0.0/", NetworkError::Bits),
            ("10.0.0.0/+8", NetworkError::Bits),
            ("::/129", NetworkError::Bits),
            ("::/999", NetworkError::Bits),
            ("10.1.0.0/8", NetworkError::HostBits(network("10.0.0.0/8"))),
        ] {
            assert_eq!(text.parse::<Network>(), Err(error), "{text}");
        }
        let error = "2001:db8::1/32".parse::<Network>().expect_err("host bits");
        assert!(error.to_string().contains("2001:db8::/32"), "{error}");
    }

    proptest! {
        #[test]
        fn membership_is_equality_of_the_first_bits(one: u128, other: u128, bits in 0_u8..=128) {
            let (one, other) = (IpAddr::V6(one.into()), IpAddr::V6(other.into()));
            prop_assume!(other.to_canonical().is_ipv6());
            let network = Network::of(one, bits).expect("at most 128");
            let shown: Network = network.to_string().parse().expect("what is shown is read");
            prop_assert!(network.contains(one) || one.to_canonical().is_ipv4());
            let (IpAddr::V6(a), IpAddr::V6(b)) = (one, other) else { unreachable!() };
            let same = (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits.into();
            prop_assert_eq!(network.contains(other), same);
            prop_assert_eq!(shown.contains(other), same);
        }
    }
}
