//! What the limits on strangers and the trusted proxies mean.

use super::tables::ClientTable;
use super::{ConfigError, Options, refuse};
use myriad_shard::{Limits, RateLimit, TrustedProxies};
use myriad_units::option::{AllowedRate, Count};

impl ClientTable {
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn limits(&self) -> Result<Limits, ConfigError> {
        let rates = &self.rate_limits;
        Ok(Limits {
            connections_per_address: number(
                "client.connection_limit_per_address",
                self.connection_limit_per_address,
            )?,
            connection_rate_per_address: rate(self.connection_rate_limit_per_address),
            unlimited_addresses: self.unlimited_addresses.iter().copied().collect(),
            connection_rate: rate(self.connection_rate_limit),
            connections_per_user: number(
                "client.user_connection_limit",
                self.user_connection_limit,
            )?,
            commands: rate(rates.commands),
            publishes: rate(rates.publishes),
            publishes_per_channel: rate(rates.publishes_per_channel),
            subscribes: rate(rates.subscribes),
            reads: rate(rates.reads),
            new_channels: match rates.new_channels {
                None => Limits::default().new_channels,
                written => rate(written),
            },
        })
    }
}

impl Options {
    /// # Errors
    /// The PROXY protocol is to be spoken by nobody.
    pub(super) fn proxies(&self) -> Result<TrustedProxies, ConfigError> {
        let networks = self.trusted_proxies.iter().flatten().copied();
        let proxies = TrustedProxies {
            networks: networks.collect(),
            proxy_protocol: self.proxy_protocol.unwrap_or(false),
            header: self.client_address_header.unwrap_or_default(),
        };
        if proxies.proxy_protocol && proxies.networks.is_empty() {
            let advice =
                "list the proxies that speak it in trusted-proxies; nobody else is believed";
            return Err(refuse("proxy-protocol", true, advice));
        }
        Ok(proxies)
    }
}

/// A number of which zero is no limit.
fn number(field: &'static str, written: Option<Count>) -> Result<u32, ConfigError> {
    let count = written.unwrap_or(Count(0));
    u32::try_from(count.0).map_err(|_| refuse(field, count, "choose at most 4,294,967,295"))
}

/// A rate of which zero is no limit.
fn rate(written: Option<AllowedRate>) -> Option<RateLimit> {
    let written = written?;
    RateLimit::new(written.count, written.period)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Options};
    use crate::Machine;
    use myriad_shard::{AddressHeader, Limits, RateLimit};
    use std::path::Path;
    use std::time::Duration;

    fn config(text: &str) -> Result<Config, String> {
        let machine = Machine::OF_TESTS;
        let options = Options::from_text(text, Path::new("m.toml"));
        let config = options.and_then(|options| options.resolve(&machine));
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn little_is_limited_unless_it_is_written() {
        let settings = config("").unwrap().settings;
        assert_eq!(*settings.limits, Limits::default());
        let of_names = RateLimit::new(256, Duration::from_secs(1));
        assert_eq!(settings.limits.new_channels, of_names);
        let none = config("[client.rate_limits]\nnew_channels = 0").unwrap();
        assert_eq!(none.settings.limits.new_channels, None);
        assert!(settings.proxies.networks.is_empty());
        let zero = "[client]\nuser_connection_limit = 0\nconnection_rate_limit = 0\n\
                    connection_limit = 0\n[client.rate_limits]\ncommands = \"0\"";
        let config = config(zero).unwrap();
        assert_eq!(*config.settings.limits, Limits::default());
        assert_eq!(config.max_connections, 1_000_000);
    }

    #[test]
    fn limits_are_read_with_their_times() {
        let text = "[client]\nconnection_limit = 500\nconnection_limit_per_address = 20\n\
                    connection_rate_limit_per_address = \"60/m\"\nunlimited_addresses = [\"10.0.0.0/8\"]\n\
                    connection_rate_limit = 100\nuser_connection_limit = 3\n\
                    [client.rate_limits]\ncommands = 50\npublishes = \"1k/h\"\nreads = \"5/m\"\n\
                    new_channels = \"40/m\"";
        let config = config(text).unwrap();
        let limits = &config.settings.limits;
        let per = |count, seconds| RateLimit::new(count, Duration::from_secs(seconds));
        assert_eq!(config.max_connections, 500);
        assert_eq!(
            (limits.connections_per_address, limits.connections_per_user),
            (20, 3)
        );
        assert_eq!(limits.connection_rate_per_address, per(60, 60));
        assert_eq!(limits.connection_rate, per(100, 1));
        assert_eq!(
            (limits.commands, limits.publishes),
            (per(50, 1), per(1000, 3600))
        );
        assert_eq!(limits.reads, per(5, 60));
        assert_eq!(limits.new_channels, per(40, 60));
        assert!(limits.unlimited_addresses.contains([10, 1, 2, 3].into()));
    }

    #[test]
    fn proxies_are_listed() {
        let text = "trusted-proxies = [\"10.0.0.0/8\", \"::1\"]\nproxy-protocol = true\n\
                    client-address-header = \"Forwarded\"";
        let proxies = config(text).unwrap().settings.proxies;
        assert!(proxies.networks.contains([10, 0, 0, 1].into()) && proxies.proxy_protocol);
        assert_eq!(proxies.header, AddressHeader::Forwarded);
    }

    #[test]
    fn mistakes_say_what_to_do() {
        for (text, said) in [
            ("proxy-protocol = true", "trusted-proxies"),
            ("trusted-proxies = [\"10.1.0.0/8\"]", "10.0.0.0/8"),
            ("trusted-proxies = [\"localhost\"]", "write an IP address"),
            ("trusted-proxies = \"::1\"", "it is a list"),
            ("client-address-header = \"via\"", "choose x-forwarded-for"),
            (
                "[client]\nunlimited_addresses = [\"a\"]",
                "write an IP address",
            ),
            ("[client]\nconnection_rate_limit = \"5/d\"", "20/s"),
            ("[client]\nuser_connection_limit = \"9g\"", "4,294,967,295"),
            (
                "max-connections = 5\n[client]\nconnection_limit = 6",
                "keep one",
            ),
            (
                "allowed-origins = []\n[client]\nallowed_origins = []",
                "keep one",
            ),
            (
                "[client.rate_limits]\npublish = 5",
                "did you mean publishes?",
            ),
        ] {
            let error = config(text).map(drop).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn codes_have_responses_of_the_operator() {
        let table = |rest: &str| format!("[[client.connect_code_to_http_response]]\n{rest}\n");
        let text = table("code = 3005\nstatus_code = 403\nbody = \"expired\"")
            + &table("code = 4501\nstatus_code = 410");
        let wishes = config(&text).unwrap().settings.client.http_refusals;
        let wishes = wishes
            .iter()
            .map(|wish| (wish.code, wish.status, wish.body.as_deref()));
        assert!(wishes.eq([(3005, 403, Some("expired")), (4501, 410, None)]));
        let twice = table("code = 3005\nstatus_code = 403").repeat(2);
        for (text, said) in [
            (table("code = 109\nstatus_code = 403"), "3000 to 4999"),
            (table("code = 3005\nstatus_code = 200"), "400 to 599"),
            (table("code = 3005"), "status_code"),
            (twice, "each code once"),
        ] {
            let error = config(&text).map(drop).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn origins_have_two_names() {
        let listed = config("[client]\nallowed_origins = [\"https://*.example.com\"]").unwrap();
        let allowed = listed.settings.allowed_origins;
        assert_eq!(allowed[0].to_string(), "https://*.example.com");
        let empty = config("[client]\nallowed_origins = []").unwrap();
        assert!(empty.settings.allowed_origins.is_empty());
    }
}
