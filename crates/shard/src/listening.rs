//! Who may see a channel, and who may listen to one without a session: clients of `/raw`, and readers of streams. Every way to
//! what a channel has asks the same question, so that nobody gets by one way what a name keeps from him by another.

use crate::access::ConnectGrant;
use crate::settings::Settings;
use myriad_hub::{ChannelOptions, NameError, Namespaces, Subscribable};

/// Why somebody may not listen to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenRefused {
    /// The channel's name says so.
    Name(NameError),
    /// The application is asked about each subscription there, and nobody asks it here.
    Application,
    /// Its namespace does not let such clients subscribe.
    Right {
        /// The client has no user.
        is_anonymous: bool,
    },
}

impl ListenRefused {
    /// What is wrong, and what to do about it.
    #[must_use]
    pub fn sentence(self, channel: &str) -> String {
        let shown: String = channel.chars().take(100).collect();
        let why = match self {
            Self::Name(NameError::Empty) => "has no name",
            Self::Name(NameError::TooLong) => "has a name that is too long",
            Self::Name(NameError::UnknownNamespace) => "is of a namespace that is not configured",
            Self::Name(NameError::Invalid) => "has a name that its namespace does not allow",
            Self::Name(NameError::Private) => {
                "is private: only a token that names it lets you read"
            }
            Self::Name(NameError::OtherUsers) => "is for other users only",
            Self::Application => {
                "is one about which the application is asked: subscribe at /connection/websocket, or show a token that names the channel, or a key of the API"
            }
            Self::Right { is_anonymous: true } => {
                "is not for anonymous clients: its namespace needs allow_subscribe_for_client and allow_subscribe_for_anonymous for that, or show the token of a user"
            }
            Self::Right {
                is_anonymous: false,
            } => {
                "is not one that this user may subscribe to: its namespace needs allow_subscribe_for_client for that, or the token has to name the channel"
            }
        };
        format!("Channel {shown:?} {why}.")
    }
}

impl Settings {
    /// Whether a user may see a channel, as far as its name is concerned: subscribe to it, recover, publish, read its history and its
    /// members, or read, write and end it as a stream. `user` is empty for an anonymous client. `is_granted` is true if a token or the application
    /// lets him, or if he is subscribed, because that was asked when he subscribed. Options decide about everything else.
    ///
    /// # Errors
    /// As [`Namespaces::check_subscribable`]. Personal channels of others count as those of other users.
    pub fn check_visible(
        &self,
        channel: &str,
        user: &str,
        is_granted: bool,
    ) -> Result<Subscribable<'_>, NameError> {
        let named = self
            .namespaces
            .check_subscribable(channel, user, is_granted)?;
        let is_open = is_granted || named.names_user;
        if !is_open && self.is_of_others(channel, user) {
            return Err(NameError::OtherUsers);
        }
        Ok(named)
    }

    /// Whether whoever has shown a token may listen: because the token or the channel's name says so, or because all
    /// subscribers may.
    ///
    /// # Errors
    /// He may not.
    pub fn check_listener(&self, channel: &str, grant: &ConnectGrant) -> Result<(), ListenRefused> {
        let user = grant.user.as_deref().unwrap_or_default();
        let mut granted = grant.subscriptions.iter();
        let is_granted = granted.any(|(granted, _)| **granted == *channel);
        let named = self.check_visible(channel, user, is_granted);
        let named = named.map_err(ListenRefused::Name)?;
        if is_granted || named.names_user {
            return Ok(());
        }
        self.check_right(named.options, user.is_empty())
    }

    /// Whether whoever has shown nothing may listen. Its name need not match its namespace's pattern: that binds those who
    /// choose names.
    ///
    /// # Errors
    /// He may not.
    pub fn check_stranger(&self, channel: &str) -> Result<(), ListenRefused> {
        let options = self.namespaces.options_of(channel);
        let options = options.ok_or(ListenRefused::Name(NameError::UnknownNamespace))?;
        if channel.starts_with(Namespaces::PRIVATE_PREFIX) {
            return Err(ListenRefused::Name(NameError::Private));
        }
        if options.users_of(channel).is_some() || self.is_of_others(channel, "") {
            return Err(ListenRefused::Name(NameError::OtherUsers));
        }
        if self.has_open_api() {
            return Ok(());
        }
        self.check_right(options, true)
    }

    /// Whether a channel is another user's own.
    fn is_of_others(&self, channel: &str, user: &str) -> bool {
        let personal = self.client.personal_channel.as_ref();
        personal.is_some_and(|personal| personal.is_of_another(channel, user))
    }

    /// Whether everybody may call the API at the clients' address, and so read each history and publish: rights of namespaces
    /// would keep nothing from anybody.
    fn has_open_api(&self) -> bool {
        let keys = self.access.keys.as_ref();
        self.hands_over && keys.is_some_and(|keys| keys.is_open())
    }

    fn check_right(
        &self,
        options: &ChannelOptions,
        is_anonymous: bool,
    ) -> Result<(), ListenRefused> {
        if options.proxies.subscribe.is_some() {
            return Err(ListenRefused::Application);
        }
        if self.client.insecure || options.subscribe.allows(is_anonymous, false) {
            return Ok(());
        }
        Err(ListenRefused::Right { is_anonymous })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{ApiKeys, KeyFault, SubscribeGrant};
    use myriad_hub::{ChannelProxies, PersonalChannel, Right};
    use std::sync::Arc;

    fn right(client: bool, anonymous: bool) -> Right {
        Right {
            client,
            subscriber: false,
            anonymous,
        }
    }

    fn settings(subscribe: Right, is_asked: bool) -> Settings {
        let options = ChannelOptions {
            subscribe,
            allow_user_limited_channels: true,
            proxies: ChannelProxies {
                subscribe: is_asked.then(|| "default".into()),
                ..ChannelProxies::default()
            },
            ..ChannelOptions::default()
        };
        Settings {
            namespaces: Arc::new(Namespaces::new(options, [])),
            ..Settings::default()
        }
    }

    fn of(user: &str) -> ConnectGrant {
        ConnectGrant {
            user: (!user.is_empty()).then(|| user.into()),
            subscriptions: vec![("$named".into(), SubscribeGrant::default())],
            ..ConnectGrant::default()
        }
    }

    #[test]
    fn the_right_to_subscribe_is_the_right_to_listen() {
        for (client, anonymous, user, nobody) in [
            (false, false, false, false),
            (false, true, false, false),
            (true, false, true, false),
            (true, true, true, true),
        ] {
            let settings = settings(right(client, anonymous), false);
            assert_eq!(settings.check_listener("a", &of("7")).is_ok(), user);
            assert_eq!(settings.check_listener("a", &of("")).is_ok(), nobody);
            assert_eq!(settings.check_stranger("a").is_ok(), nobody);
        }
    }

    #[test]
    fn names_and_tokens_come_before_the_right() {
        let mut settings = settings(right(false, false), false);
        settings.client.personal_channel = Some(PersonalChannel {
            namespace: None,
            single_connection: false,
        });
        let user = of("7");
        for (channel, expected) in [
            ("$named", Ok(())),
            ("room#7,8", Ok(())),
            ("$other", Err(ListenRefused::Name(NameError::Private))),
            ("#7,9", Ok(())),
            ("room#8", Err(ListenRefused::Name(NameError::OtherUsers))),
            (
                "a",
                Err(ListenRefused::Right {
                    is_anonymous: false,
                }),
            ),
        ] {
            assert_eq!(
                settings.check_listener(channel, &user),
                expected,
                "{channel}"
            );
        }
        settings.client.insecure = true;
        assert_eq!(settings.check_stranger("a"), Ok(()));
        for channel in ["$named", "room#7", "#7", "no:such"] {
            let refused = settings.check_stranger(channel);
            assert!(matches!(refused, Err(ListenRefused::Name(_))), "{channel}");
        }
    }

    #[test]
    fn where_the_application_is_asked_only_its_token_lets_in() {
        let settings = settings(right(true, true), true);
        let refused = Err(ListenRefused::Application);
        assert_eq!(settings.check_stranger("a"), refused);
        assert_eq!(settings.check_listener("a", &of("7")), refused);
        assert_eq!(settings.check_listener("$named", &of("7")), Ok(()));
        assert_eq!(settings.check_listener("room#7", &of("7")), Ok(()));
    }

    #[derive(Debug)]
    struct Open;

    impl ApiKeys for Open {
        fn is_open(&self) -> bool {
            true
        }

        fn check_read(&self, _: &[u8], _: &str) -> Result<(), KeyFault> {
            Ok(())
        }
    }

    #[test]
    fn an_open_api_keeps_nothing_from_anybody() {
        let mut settings = settings(right(false, false), false);
        settings.access.keys = Some(Arc::new(Open));
        settings.hands_over = true;
        assert_eq!(settings.check_stranger("a"), Ok(()));
        assert!(settings.check_stranger("$a").is_err());
        settings.hands_over = false;
        assert!(settings.check_stranger("a").is_err());
    }
}
