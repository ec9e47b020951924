//! What a seed decides, and what a reload changes: who may do what.

use super::tokens::Revoked;
use crate::plan::Plan;
use crate::verdict::ns;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    Access, ChannelOptions, ChannelProxies, Limits, Namespaces, NoticeSettings, PersonalChannel,
    RateLimit, Right, Settings,
};
use std::sync::Arc;
use std::time::Duration;

/// The channels in use. The first one is open where the rules say so, the last one names two users, and nobody subscribes to any
/// other without a token, the application's word, or the server's own doing.
pub(crate) const ROOMS: [&str; 6] = [
    "open",
    "$private",
    "s:one",
    "s:two",
    "closed:one",
    "d:talk#1,2",
];
const OPEN: usize = 0;
const PRIVATE: usize = 1;
const TALK: usize = 5;
/// Users are 1 to this one.
pub(crate) const USERS: usize = 4;
/// Ids of tokens are less than this.
pub(crate) const TOKEN_IDS: usize = 12;
/// Time that a client has after the end of its token.
pub(crate) const DELAY: Duration = Duration::from_millis(200);
/// The period of all rates.
const PERIOD: Duration = Duration::from_secs(1);
const SUBSCRIPTIONS_MAX: u32 = 128;

/// What can change while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// There is a key for tokens.
    pub(crate) tokens: bool,
    /// The application is asked about clients without a token.
    pub(crate) connect_proxy: bool,
    /// Clients without a token may connect, where the application is not asked.
    pub(crate) anonymous: bool,
    /// A token must name a user.
    pub(crate) wants_user: bool,
    /// Everybody may subscribe to the first room.
    pub(crate) is_open: bool,
    /// The application is asked about subscriptions of the namespace `s`; otherwise there are none.
    pub(crate) subscribe_proxy: bool,
    /// The application is asked about publications there; otherwise everybody may publish.
    pub(crate) publish_proxy: bool,
    pub(crate) subscriptions_max: u32,
}

/// What stays as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    /// The application refreshes connections.
    pub(crate) refresh_proxy: bool,
    /// The application refreshes subscriptions of the namespace `s`.
    pub(crate) sub_refresh_proxy: bool,
    /// Each user has a channel of its own.
    pub(crate) personal: bool,
    /// A user's new connection ends the older ones.
    pub(crate) single_connection: bool,
    pub(crate) ask_timeout: Duration,
    /// Connections of one user; 0 for any number.
    pub(crate) users_max: u32,
    /// As many in a second; 0 for any number. Commands of a client, its publications, and publications to a room.
    pub(crate) commands: u64,
    pub(crate) publishes: u64,
    pub(crate) publishes_per_room: u64,
    pub(crate) subscribes: u64,
    /// Connections of one address, and how many may begin in a second: of one address, and in all.
    pub(crate) per_address: u32,
    pub(crate) rate_per_address: u64,
    pub(crate) rate: u64,
    /// Connections begin with a header of the PROXY protocol.
    pub(crate) proxy_protocol: bool,
}

impl Rules {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        Self {
            tokens: !prng.one_in(12),
            connect_proxy: prng.one_in(2),
            anonymous: prng.one_in(2),
            wants_user: prng.one_in(4),
            is_open: !prng.one_in(4),
            subscribe_proxy: !prng.one_in(4),
            publish_proxy: !prng.one_in(3),
            subscriptions_max: *prng.pick(&[SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_MAX, 2]),
        }
    }

    pub(crate) fn limits_subscriptions(&self) -> bool {
        self.subscriptions_max < SUBSCRIPTIONS_MAX
    }

    /// Whether a client may subscribe that shows no token. None: the application says so.
    pub(crate) fn may_subscribe(&self, room: usize, user: usize) -> Option<bool> {
        match room {
            OPEN => Some(self.is_open),
            TALK => Some(matches!(user, 1 | 2)),
            _ if is_asked_about(room) && self.subscribe_proxy => None,
            _ => Some(false),
        }
    }

    /// Whether a client may publish, which has subscribed or not. None: the application says so.
    pub(crate) fn may_publish(&self, room: usize, is_inside: bool) -> Option<bool> {
        match room {
            OPEN => Some(true),
            PRIVATE => Some(is_inside),
            _ if !is_asked_about(room) => Some(false),
            _ if self.publish_proxy => None,
            _ => Some(true),
        }
    }

    fn namespaces(&self, fixed: &Fixed) -> Namespaces {
        let app = |is_asked: bool| is_asked.then(|| "app".into());
        let closed = ChannelOptions {
            presence: true,
            ..ChannelOptions::default()
        };
        let plain = ChannelOptions {
            subscribe: if self.is_open {
                Right::ALL
            } else {
                Right::default()
            },
            publish: Right::ALL,
            ..closed.clone()
        };
        let asked = ChannelOptions {
            publish: Right::ALL,
            proxies: ChannelProxies {
                subscribe: app(self.subscribe_proxy),
                publish: app(self.publish_proxy),
                sub_refresh: app(fixed.sub_refresh_proxy),
            },
            ..closed.clone()
        };
        let dialogs = ChannelOptions {
            allow_user_limited_channels: true,
            ..closed.clone()
        };
        let named = [("s", asked), ("closed", closed), ("d", dialogs)];
        Namespaces::new(plain, named.map(|(name, options)| (name.into(), options)))
    }

    /// The settings of a node with these rules.
    pub(crate) fn settings(&self, fixed: &Fixed, tokens: &Revoked, base: &Settings) -> Settings {
        let mut settings = base.clone();
        settings.anonymous = self.anonymous;
        settings.subscriptions_max = self.subscriptions_max;
        settings.namespaces = Arc::new(self.namespaces(fixed));
        settings.access = Access {
            tokens: self.tokens.then(|| Arc::new(tokens.clone()) as Arc<_>),
            disallow_anonymous_connection_tokens: self.wants_user,
            connect_proxy: self.connect_proxy,
            refresh_proxy: fixed.refresh_proxy,
            ..Access::default()
        };
        settings
    }
}

/// Whether the application may be asked about a room.
pub(crate) fn is_asked_about(room: usize) -> bool {
    ROOMS[room].starts_with("s:")
}

impl Fixed {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        let has_limits = prng.one_in(3);
        let mut limit = |choices: &[u64]| if has_limits { *prng.pick(choices) } else { 0 };
        let (commands, publishes) = (limit(&[0, 0, 6]), limit(&[0, 0, 3]));
        let (publishes_per_room, subscribes) = (limit(&[0, 0, 4]), limit(&[0, 0, 3]));
        let per_address = limit(&[0, 0, 3]);
        let (rate_per_address, rate) = (limit(&[0, 0, 0, 3]), limit(&[0, 0, 0, 5]));
        let is_proxied = limit(&[0, 0, 1]) == 1;
        let personal = prng.one_in(2);
        Self {
            refresh_proxy: prng.one_in(3),
            sub_refresh_proxy: prng.one_in(2),
            personal,
            single_connection: personal && prng.one_in(3),
            ask_timeout: Duration::from_millis(*prng.pick(&[200, 1_000])),
            users_max: *prng.pick(&[0, 0, 2]),
            commands,
            publishes,
            publishes_per_room,
            subscribes,
            per_address: u32::try_from(per_address).expect("small"),
            rate_per_address,
            rate,
            proxy_protocol: is_proxied,
        }
    }

    pub(crate) fn limits_connections(&self) -> bool {
        self.per_address > 0 || self.rate_per_address > 0 || self.rate > 0
    }

    /// Nanoseconds of the control plane's deadline.
    pub(crate) fn ask_timeout_ns(&self) -> u64 {
        ns(self.ask_timeout)
    }

    /// The node before any rules.
    pub(crate) fn plan(&self, prng: &mut Prng) -> Plan {
        let mut plan = Plan::plain();
        plan.draw_node(prng);
        plan.limits_strangers = true;
        plan.limits.asks_max = *prng.pick(&[4_096, 4_096, 2]);
        let settings = &mut plan.settings;
        settings.slice_max = *prng.pick(&[1, 2, 3, 7, 1024]);
        settings.ask_timeout = self.ask_timeout;
        settings.notices = NoticeSettings {
            clients: true,
            vacated_delay: Some(Duration::ZERO),
        };
        settings.client.expired_close_delay = DELAY;
        settings.client.expired_sub_close_delay = DELAY;
        settings.client.stale_close_delay = Duration::from_secs(20);
        settings.client.personal_channel = self.personal.then(|| PersonalChannel {
            namespace: Some("d".into()),
            single_connection: self.single_connection,
        });
        let rate = |count| RateLimit::new(count, PERIOD);
        settings.limits = Arc::new(Limits {
            connections_per_address: self.per_address,
            connection_rate_per_address: rate(self.rate_per_address),
            connection_rate: rate(self.rate),
            connections_per_user: self.users_max,
            commands: rate(self.commands),
            publishes: rate(self.publishes),
            publishes_per_channel: rate(self.publishes_per_room),
            subscribes: rate(self.subscribes),
            ..Limits::default()
        });
        if self.proxy_protocol {
            let mut proxies = (*settings.proxies).clone();
            proxies.proxy_protocol = true;
            proxies.networks = "10.0.0.0/8"
                .parse()
                .map(|network| [network].into_iter().collect())
                .expect("a network");
            settings.proxies = Arc::new(proxies);
        }
        plan
    }
}
