//! Tokens of readers, which say how long they count and who verifies them, and the control plane's desk.

use crate::ledger::Replies;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    Ask, AskAnswer, ConnectGrant, ErrorCode, Mesh, Question, SubscribeGrant, TokenFault,
    TokenIdentity, Tokens, Verdict,
};
use std::time::Duration;

/// A token that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Time for which it counts.
    pub(super) seconds: u64,
    /// It is costly to verify: the control plane does it.
    pub(super) is_later: bool,
}

impl Token {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        Self {
            seconds: prng.between(1, 5) as u64,
            is_later: prng.one_in(2),
        }
    }

    pub(super) fn lasts(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(super) fn text(self) -> String {
        let who = if self.is_later { "later" } else { "now" };
        format!("{who}.{}", self.seconds)
    }

    fn read(text: &str) -> Option<Self> {
        let (who, seconds) = text.split_once('.')?;
        Some(Self {
            seconds: seconds.parse().ok()?,
            is_later: who == "later",
        })
    }

    fn grant(self) -> ConnectGrant {
        ConnectGrant {
            user: Some("1".into()),
            expires_in: Some(self.lasts()),
            ..ConnectGrant::default()
        }
    }
}

/// Believes what a token says.
#[derive(Debug)]
pub(super) struct Verifier;

impl Tokens for Verifier {
    fn connection(&self, token: &str) -> Verdict<ConnectGrant> {
        match Token::read(token) {
            None => Verdict::Now(Err(TokenFault::Invalid("a simulation"))),
            Some(token) if token.is_later => Verdict::Later,
            Some(token) => Verdict::Now(Ok(token.grant())),
        }
    }

    fn subscription(
        &self,
        _token: &str,
        _channel: &str,
        _user: &str,
        _client: &str,
    ) -> Verdict<SubscribeGrant> {
        unreachable!("readers do not subscribe by commands")
    }

    fn is_revoked(&self, _token: &TokenIdentity, _user: &str) -> bool {
        false
    }
}

/// The control plane verifies tokens, at once or late.
#[derive(Debug)]
pub(super) struct Desk {
    replies: Replies,
    held: Vec<Ask>,
}

impl Desk {
    pub(super) fn new(replies: Replies) -> Self {
        Self {
            replies,
            held: Vec::new(),
        }
    }

    /// Whether somebody waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes in what was asked. True if there was something.
    pub(super) fn attend(&mut self) -> bool {
        let asks = self.replies.take_asks();
        let is_moving = !asks.is_empty();
        self.held.extend(asks);
        is_moving
    }

    /// Answers one of those who wait.
    pub(super) fn decide(&mut self, mesh: &Mesh, prng: &mut Prng) {
        if !self.held.is_empty() {
            let ask = self.held.swap_remove(prng.below(self.held.len()));
            answer(mesh, ask);
        }
    }

    /// Forgets all, at the end: the last request of somebody who has sent a FIN may be asked about when nobody answers any more.
    pub(super) fn forget(&mut self) {
        self.attend();
        self.held.clear();
    }

    /// Answers all; true if somebody waited.
    pub(super) fn clear(&mut self, mesh: &Mesh) -> bool {
        let is_moving = self.is_awaited();
        self.held.drain(..).for_each(|ask| answer(mesh, ask));
        is_moving
    }
}

fn answer(mesh: &Mesh, ask: Ask) {
    let answer = match ask.question() {
        Question::Read { token } => {
            let token = Token::read(token).expect("a token of ours");
            AskAnswer::Connect(Box::new(token.grant()))
        }
        // A guest's.
        Question::Connect { .. } => AskAnswer::Refused(ErrorCode::Internal.into()),
        other => unreachable!("{other:?} is not asked here"),
    };
    mesh.answer(ask, answer);
}
