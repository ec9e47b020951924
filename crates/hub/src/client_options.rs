//! What the server asks of clients that speak the Centrifuge protocol, and what it gives them.

use std::time::Duration;

/// Options of sessions, the same for all of a server. Names are those that users of Centrifugo know.
///
/// How many channels a connection may have, and the times of pings, bind every transport: they are settings of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// A connection that has not sent its connect command by then ends with code 3502.
    pub stale_close_delay: Duration,
    /// Time that a client has to refresh its connection after the end of its token.
    pub expired_close_delay: Duration,
    /// Time that a client has to refresh a subscription after the end of its token.
    pub expired_sub_close_delay: Duration,
    /// Publications that one reading of history returns to a client at most.
    pub history_max_publication_limit: u32,
    /// Publications that one recovery reads at most. A client that missed more has not recovered.
    pub recovery_max_publication_limit: u32,
    /// What comparing a publication with one client's filter of tags may cost: see `Filter::work` of the protocol.
    pub tags_filter_work_limit: u32,
    /// Bytes of the names and values of one publication's tags.
    pub tags_bytes_limit: u32,
    /// Every client has every right, without proof of who it is. What a namespace does not do at all stays off.
    pub insecure: bool,
    /// Clients may connect without proof of who they are; they are anonymous.
    pub allow_anonymous_connect_without_token: bool,
    /// A header of the upgrade request, in lower case, that names the user. Only for a proxy in front that sets it always.
    pub user_id_http_header: Option<Box<str>>,
    /// Whether each user has a channel of its own.
    pub personal_channel: Option<PersonalChannel>,
    /// Responses of HTTP to clients without commands that may not connect, instead of those that a code has by itself.
    pub http_refusals: Box<[HttpRefusal]>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            stale_close_delay: Duration::from_secs(10),
            expired_close_delay: Duration::from_secs(25),
            expired_sub_close_delay: Duration::from_secs(25),
            history_max_publication_limit: 300,
            recovery_max_publication_limit: 300,
            tags_filter_work_limit: 256,
            tags_bytes_limit: 4096,
            insecure: false,
            allow_anonymous_connect_without_token: false,
            user_id_http_header: None,
            personal_channel: None,
            http_refusals: Box::default(),
        }
    }
}

/// The response of HTTP to a client without commands whose connection ends with a code before it has connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    /// The code of the close.
    pub code: u16,
    /// The status.
    pub status: u16,
    /// The body, as plain text; none for a sentence with the code.
    pub body: Option<Box<str>>,
}

/// The channel to which the server subscribes each user that connects: `#42`, or `NAMESPACE:#42`, for user 42.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonalChannel {
    /// Its namespace; none for a channel without one.
    pub namespace: Option<Box<str>>,
    /// A new connection of a user ends that user's older ones with code 3504.
    pub single_connection: bool,
}

impl PersonalChannel {
    /// The name of a user's channel.
    #[must_use]
    pub fn name_for(&self, user: &str) -> String {
        let (namespace, boundary) = match &self.namespace {
            Some(namespace) => (&**namespace, ":"),
            None => ("", ""),
        };
        format!("{namespace}{boundary}#{user}")
    }

    /// Whether a channel is the personal one of somebody else than this user, who is empty if anonymous.
    #[must_use]
    pub fn is_of_another(&self, channel: &str, user: &str) -> bool {
        let owner = channel.strip_prefix(&*self.name_for(""));
        owner.is_some_and(|owner| user.is_empty() || owner != user)
    }
}

#[cfg(test)]
mod tests {
    use super::PersonalChannel;

    #[test]
    fn only_its_owner_has_a_personal_channel() {
        let personal = |namespace: Option<&str>| PersonalChannel {
            namespace: namespace.map(Into::into),
            single_connection: false,
        };
        let plain = personal(None);
        assert!(!plain.is_of_another("#42", "42"));
        for user in ["4", "421", ""] {
            assert!(plain.is_of_another("#42", user), "{user}");
        }
        assert!(plain.is_of_another("#", ""));
        assert!(!plain.is_of_another("news#42", "66"), "no personal channel");
        let named = personal(Some("user"));
        assert!(named.is_of_another("user:#42", "66"));
        assert!(!named.is_of_another("#42", "66") && !named.is_of_another("user:#66", "66"));
    }

    #[test]
    fn a_personal_channel_has_the_users_name() {
        for (namespace, name) in [(None, "#42"), (Some("me"), "me:#42")] {
            let channel = PersonalChannel {
                namespace: namespace.map(Into::into),
                single_connection: false,
            };
            assert_eq!(channel.name_for("42"), name);
        }
    }
}
