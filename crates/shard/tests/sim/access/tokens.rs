//! Tokens of the simulation: plain text that says what it grants, and a verifier that believes it.

use super::rules::ROOMS;
use myriad_shard::{
    ConnectGrant, Payload, SubscribeGrant, TokenFault, TokenIdentity, Tokens, Verdict,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a token, or the application, says. Zero stands for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// The command that shows it. What is granted by it carries this number.
    pub(crate) serial: u32,
    /// It is costly to verify: the control plane does it.
    pub(crate) is_later: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) user: usize,
    /// Seconds until what it grants expires.
    pub(crate) ttl: u32,
    /// By which it can be revoked.
    pub(crate) id: u64,
    /// Of a token for a subscription.
    pub(crate) room: usize,
    /// Subscriptions that the server makes, and seconds until they expire.
    pub(crate) subs: Vec<usize>,
    pub(crate) sub_ttl: u32,
}

/// What its maker did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Invalid,
    Expired,
}

/// The name of a user; none for 0.
pub(crate) fn user_name(user: usize) -> Option<Arc<str>> {
    (user > 0).then(|| user.to_string().into())
}

pub(crate) fn time_left(seconds: u32) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

fn json_of(serial: u32) -> Payload {
    Payload::Json(serial.to_string().into())
}

impl Token {
    pub(crate) fn text(&self) -> String {
        let fault = match self.fault {
            None => "",
            Some(Fault::Invalid) => "invalid",
            Some(Fault::Expired) => "expired",
        };
        json!([
            self.serial,
            self.is_later,
            fault,
            self.user,
            self.ttl,
            self.id,
            self.room,
            self.subs,
            self.sub_ttl
        ])
        .to_string()
    }

    pub(crate) fn read(text: &str) -> Self {
        let read: Value = serde_json::from_str(text).expect("a token of ours");
        let number = |at: usize| read[at].as_u64().expect("a number");
        let small = |at: usize| u32::try_from(number(at)).expect("a small number");
        let index = |value: &Value| usize::try_from(value.as_u64().expect("a number"));
        Self {
            serial: small(0),
            is_later: read[1] == true,
            fault: match read[2].as_str() {
                Some("invalid") => Some(Fault::Invalid),
                Some("expired") => Some(Fault::Expired),
                _ => None,
            },
            user: index(&read[3]).expect("an index"),
            ttl: small(4),
            id: number(5),
            room: index(&read[6]).expect("an index"),
            subs: read[7]
                .as_array()
                .expect("a list")
                .iter()
                .map(|room| index(room).expect("an index"))
                .collect(),
            sub_ttl: small(8),
        }
    }

    /// By which it can be revoked.
    fn identity(&self) -> Option<Arc<TokenIdentity>> {
        let identity = TokenIdentity {
            id: Some(self.id.to_string().into()),
            issued_at: None,
        };
        (self.id > 0).then(|| Arc::new(identity))
    }

    pub(crate) fn connect_grant(&self) -> ConnectGrant {
        let granted = |&room: &usize| {
            let grant = SubscribeGrant {
                expires_in: time_left(self.sub_ttl),
                data: Some(json_of(self.serial)),
                ..SubscribeGrant::default()
            };
            (ROOMS[room].into(), grant)
        };
        ConnectGrant {
            user: user_name(self.user),
            expires_in: time_left(self.ttl),
            info: Some(json_of(self.serial).bytes().into()),
            data: Some(json_of(self.serial)),
            subscriptions: self.subs.iter().map(granted).collect(),
            meta: None,
            token: self.identity(),
        }
    }

    pub(crate) fn subscribe_grant(&self) -> SubscribeGrant {
        SubscribeGrant {
            expires_in: time_left(self.ttl),
            info: None,
            data: Some(json_of(self.serial)),
            token: self.identity(),
            ..SubscribeGrant::default()
        }
    }
}

/// Ids of tokens that are revoked. The control plane and all shards see them at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revoked(Arc<Mutex<BTreeSet<u64>>>);

impl Revoked {
    pub(crate) fn add(&self, id: u64) {
        self.0.lock().expect("one thread").insert(id);
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.0.lock().expect("one thread").contains(&id)
    }

    /// What is wrong with a token for a connection.
    pub(crate) fn judge(&self, token: &Token) -> Result<(), TokenFault> {
        match token.fault {
            Some(Fault::Invalid) => Err(TokenFault::Invalid("a simulation")),
            Some(Fault::Expired) => Err(TokenFault::Expired),
            None if self.contains(token.id) => Err(TokenFault::Revoked),
            None => Ok(()),
        }
    }

    /// What is wrong with a token for a subscription.
    pub(crate) fn judge_for(
        &self,
        token: &Token,
        channel: &str,
        user: &str,
    ) -> Result<(), TokenFault> {
        if ROOMS[token.room] != channel {
            return Err(TokenFault::OtherChannel);
        }
        if user_name(token.user).as_deref().unwrap_or_default() != user {
            return Err(TokenFault::OtherUser);
        }
        self.judge(token)
    }
}

impl Tokens for Revoked {
    fn connection(&self, token: &str) -> Verdict<ConnectGrant> {
        let token = Token::read(token);
        if token.is_later {
            return Verdict::Later;
        }
        Verdict::Now(self.judge(&token).map(|()| token.connect_grant()))
    }

    fn subscription(
        &self,
        token: &str,
        channel: &str,
        user: &str,
        client: &str,
    ) -> Verdict<SubscribeGrant> {
        assert!(!client.is_empty(), "a token may be for one connection");
        let token = Token::read(token);
        if token.is_later {
            return Verdict::Later;
        }
        let judged = self.judge_for(&token, channel, user);
        Verdict::Now(judged.map(|()| token.subscribe_grant()))
    }

    fn is_revoked(&self, token: &TokenIdentity, _user: &str) -> bool {
        let id = token.id.as_deref().and_then(|id| id.parse().ok());
        id.is_some_and(|id| self.contains(id))
    }
}
