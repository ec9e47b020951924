//! The application, and the control plane before it: it answers what shards ask at once, late, out of order, or never, and
//! notes what it has said.

use super::rules::{ROOMS, USERS};
use super::tokens::{Revoked, Token, time_left};
use crate::ledger::Replies;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    ApplicationClose, Ask, AskAnswer, Mesh, Now, Payload, PublishGrant, Question, RefreshGrant,
    Refreshed, Refusal, TokenFault,
};
use std::collections::HashMap;

/// What was said to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// What a token or the application grants; of a publication or a method only its number.
    Granted(Box<Token>),
    /// The error with this code.
    Error(u64),
    /// The end of the connection with this code.
    Disconnect(u16),
    Fault(TokenFault),
    /// Nothing that can be used.
    Nothing,
}

/// What the server asks of its own will, and the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Asked,
    /// It goes on for so many seconds; 0 for ever.
    GoesOn(u32),
    Expired,
}

/// [`Own`], of a client and one of its subscriptions, or the connection.
pub(crate) type OwnEvent = (String, Option<usize>, Own);

pub(crate) struct Desk {
    replies: Replies,
    revoked: Revoked,
    /// What will be answered late, or never.
    held: Vec<Ask>,
    /// Whether it holds asks back.
    pub(crate) holds: bool,
    drops: bool,
    /// By the number of the command.
    said: HashMap<u32, Said>,
    /// Commands that were asked about.
    pub(crate) asked: HashMap<u32, u64>,
    /// When the server stops waiting for what is asked about a client's channel.
    open: HashMap<(String, usize), Now>,
    pub(crate) events: Vec<OwnEvent>,
}

fn room_of(channel: &str) -> usize {
    let room = ROOMS.iter().position(|room| *room == channel);
    room.expect("a channel of ours")
}

/// The number of the command that asks; none for what the server asks of its own will.
fn serial_of(question: &Question) -> Option<u32> {
    let of_token =
        |token: &Option<Box<str>>| token.as_deref().map(|token| Token::read(token).serial);
    let of_data = |data: &Payload| {
        let read: serde_json::Value = serde_json::from_slice(data.bytes()).expect("JSON");
        u32::try_from(read["s"].as_u64().expect("a number")).expect("small")
    };
    match question {
        Question::Connect { token, data, .. } | Question::Subscribe { token, data, .. } => {
            of_token(token).or_else(|| data.as_ref().map(of_data))
        }
        Question::Refresh { token } | Question::SubRefresh { token, .. } => of_token(token),
        Question::Read { token } => Some(Token::read(token).serial),
        Question::Publish { data, .. } => Some(of_data(data)),
        Question::Rpc { method, data } => {
            assert_eq!(of_data(data).to_string(), **method, "a question is whole");
            Some(of_data(data))
        }
    }
}

fn channel_of(question: &Question) -> Option<usize> {
    match question {
        Question::Subscribe { channel, .. }
        | Question::SubRefresh { channel, .. }
        | Question::Publish { channel, .. } => Some(room_of(channel)),
        _ => None,
    }
}

impl Desk {
    pub(crate) fn new(replies: Replies, revoked: Revoked, drops: bool) -> Self {
        Self {
            replies,
            revoked,
            held: Vec::new(),
            holds: true,
            drops,
            said: HashMap::new(),
            asked: HashMap::new(),
            open: HashMap::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn said(&self, serial: u32) -> Option<&Said> {
        self.said.get(&serial)
    }

    /// Takes in what was asked. True if there was something.
    pub(crate) fn attend(&mut self, mesh: &Mesh, now: Now, prng: &mut Prng) -> bool {
        let asks = self.replies.take_asks();
        let is_moving = !asks.is_empty();
        for ask in asks {
            self.take(&ask, now);
            if self.holds && prng.one_in(2) {
                self.held.push(ask);
            } else {
                self.answer(mesh, ask, now, prng);
            }
        }
        is_moving
    }

    fn take(&mut self, ask: &Ask, now: Now) {
        let (client, channel) = (ask.asker().client.to_string(), channel_of(ask.question()));
        match serial_of(ask.question()) {
            Some(serial) => {
                let before = self.asked.insert(serial, now.0);
                assert_eq!(before, None, "command {serial} is asked about once");
            }
            None => self.events.push((client.clone(), channel, Own::Asked)),
        }
        assert!(ask.deadline() > now, "there is time for an answer");
        if let Some(room) = channel {
            let before = self.open.insert((client, room), ask.deadline());
            let is_alone = before.is_none_or(|deadline| deadline <= now);
            assert!(is_alone, "{}: one command waits at a time", ROOMS[room]);
        }
    }

    /// Answers one of those that it holds, or drops it.
    pub(crate) fn decide(&mut self, mesh: &Mesh, now: Now, prng: &mut Prng) {
        if self.held.is_empty() {
            return;
        }
        let ask = self.held.swap_remove(prng.below(self.held.len()));
        if !self.drops || !prng.one_in(4) {
            self.answer(mesh, ask, now, prng);
        }
    }

    /// Answers everything that it holds, or drops all of it.
    pub(crate) fn clear(&mut self, mesh: &Mesh, now: Now, prng: &mut Prng) {
        if self.drops && prng.one_in(2) {
            self.held.clear();
        }
        for ask in std::mem::take(&mut self.held) {
            self.answer(mesh, ask, now, prng);
        }
    }

    fn answer(&mut self, mesh: &Mesh, ask: Ask, now: Now, prng: &mut Prng) {
        let client = ask.asker().client.to_string();
        let channel = channel_of(ask.question());
        if let Some(room) = channel {
            let open = self.open.get(&(client.clone(), room));
            if open == Some(&ask.deadline()) {
                self.open.remove(&(client.clone(), room));
            }
        }
        let Some(serial) = serial_of(ask.question()) else {
            let is_late = ask.deadline() <= now;
            let answer = self.answer_own(client, channel, is_late, prng);
            return mesh.answer(ask, answer);
        };
        let user = ask.asker().user.as_deref().unwrap_or_default();
        let said = self.say(ask.question(), serial, user, prng);
        let answer = answer_to(ask.question(), &said, prng);
        self.said.insert(serial, said);
        mesh.answer(ask, answer);
    }

    /// Whether a connection, or a subscription, goes on. Nobody knows whether an answer after the deadline counts.
    fn answer_own(
        &mut self,
        client: String,
        channel: Option<usize>,
        is_late: bool,
        prng: &mut Prng,
    ) -> AskAnswer {
        let refreshed = match prng.below(6) {
            0 => return AskAnswer::Unavailable,
            1 => Own::Expired,
            _ => Own::GoesOn(*prng.pick(&[0, 1, 2])),
        };
        if !is_late || refreshed == Own::Expired {
            self.events.push((client, channel, refreshed));
        }
        let grant = Box::new(RefreshGrant {
            refreshed: match refreshed {
                Own::GoesOn(seconds) => Refreshed::For(time_left(seconds)),
                Own::Asked | Own::Expired => Refreshed::Expired,
            },
            info: None,
            meta: None,
        });
        match channel {
            None => AskAnswer::Refresh(grant),
            Some(_) => AskAnswer::SubRefresh(grant),
        }
    }

    fn say(&self, question: &Question, serial: u32, user: &str, prng: &mut Prng) -> Said {
        let code = 1000 + u64::from(serial % 900);
        match prng.below(16) {
            0 => return Said::Error(code),
            1 => return Said::Disconnect(close_code(serial)),
            2 => return Said::Nothing,
            _ => {}
        }
        match question {
            Question::Connect {
                token: Some(token), ..
            }
            | Question::Refresh { token: Some(token) } => {
                let token = Token::read(token);
                judged(self.revoked.judge(&token), token)
            }
            Question::Subscribe {
                channel,
                token: Some(token),
                ..
            }
            | Question::SubRefresh {
                channel,
                token: Some(token),
                ..
            } => {
                let token = Token::read(token);
                judged(self.revoked.judge_for(&token, channel, user), token)
            }
            _ => Said::Granted(Box::new(Token {
                serial,
                user: prng.below(USERS + 1),
                ttl: *prng.pick(&[0, 0, 1, 2]),
                subs: (prng.below(3 * ROOMS.len())..ROOMS.len())
                    .take(*prng.pick(&[1, 2, 5]))
                    .collect(),
                sub_ttl: *prng.pick(&[0, 0, 1, 2]),
                ..Token::default()
            })),
        }
    }
}

fn judged(verdict: Result<(), TokenFault>, token: Token) -> Said {
    match verdict {
        Ok(()) => Said::Granted(Box::new(token)),
        Err(fault) => Said::Fault(fault),
    }
}

/// The code with which the application ends the connection that sends a command.
pub(crate) fn close_code(serial: u32) -> u16 {
    4_100 + u16::try_from(serial % 100).expect("small")
}

fn answer_to(question: &Question, said: &Said, prng: &mut Prng) -> AskAnswer {
    let serial = |grant: &Token| Payload::Json(grant.serial.to_string().into());
    match said {
        Said::Error(code) => AskAnswer::Refused(Refusal::Error {
            code: u32::try_from(*code).expect("small"),
            message: "no".into(),
            temporary: false,
        }),
        Said::Disconnect(code) => {
            let close = ApplicationClose::new((*code).into(), "go").expect("a close");
            AskAnswer::Refused(Refusal::Disconnect(close))
        }
        Said::Fault(fault) => AskAnswer::Token(*fault),
        Said::Nothing if prng.one_in(2) => AskAnswer::Unavailable,
        // An answer to another question.
        Said::Nothing => match question {
            Question::Rpc { .. } => AskAnswer::Publish(Box::default()),
            _ => AskAnswer::Rpc(Payload::Json("1".into())),
        },
        Said::Granted(grant) => match question {
            Question::Connect { .. } | Question::Read { .. } | Question::Refresh { .. } => {
                AskAnswer::Connect(Box::new(grant.connect_grant()))
            }
            Question::Subscribe { .. } | Question::SubRefresh { .. } => {
                AskAnswer::Subscribe(Box::new(grant.subscribe_grant()))
            }
            Question::Publish { .. } => AskAnswer::Publish(Box::<PublishGrant>::default()),
            Question::Rpc { .. } => AskAnswer::Rpc(serial(grant)),
        },
    }
}
