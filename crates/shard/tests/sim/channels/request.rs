//! What a reader asks for.

use super::facts::{Facts, ROOMS, STREAMS};
use super::tokens::Token;
use myriad_reactor::sim::Prng;
use myriad_shard::StreamOffset;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    No,
    Poll,
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Start,
    Now,
    After(StreamOffset),
}

/// A request, and what was known when it was made.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) room: usize,
    pub(super) from: From,
    pub(super) live: Live,
    pub(super) cursor: Option<u64>,
    pub(super) etag: Option<String>,
    pub(super) token: Option<Token>,
    /// HTTP/1.0.
    pub(super) is_old: bool,
    /// Its answer is to be the last one of its connection.
    pub(super) closes: bool,
    /// It cannot be answered but with one of these.
    pub(super) faults: &'static [u16],
    pub(super) sent_at: u64,
    pub(super) moment: u64,
    /// What everybody knew to be in the stream, by epoch.
    tops: HashMap<[u8; 8], u64>,
    /// Since when nothing is under way that has to do with it.
    pub(super) settled_at: Option<u64>,
    /// The last time at which its connection was seen to be all right, with nothing on the way.
    pub(super) alive_at: u64,
    /// It was held, or its events went on, at a quiet moment: the moment, and where its stream ended then.
    pub(super) quiet: Option<(u64, StreamOffset)>,
}

/// What a reader has found out about a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) at: Option<StreamOffset>,
    pub(super) cursor: Option<u64>,
    /// The entity tag of a read, and where that began.
    pub(super) etag: Option<(String, From)>,
}

impl Request {
    /// A plain request, sent now.
    pub(super) fn new(room: usize, from: From, live: Live, facts: &mut Facts) -> Self {
        Self {
            room,
            from,
            live,
            cursor: None,
            etag: None,
            token: None,
            is_old: false,
            closes: false,
            faults: &[],
            sent_at: facts.now,
            moment: facts.tick(),
            tops: facts.tops(room),
            settled_at: None,
            alive_at: facts.now,
            quiet: None,
        }
    }

    pub(super) fn draw(found: &[Found], facts: &mut Facts, prng: &mut Prng) -> Self {
        let room = match prng.below(3) {
            0 => facts.focus,
            _ => prng.below(STREAMS),
        };
        let found = &found[room];
        let live = *prng.pick(&[Live::No, Live::Poll, Live::Poll, Live::Events]);
        let from = match (found.at, prng.below(8)) {
            (_, 0) => From::Now,
            (Some(at), 1..) => From::After(at),
            _ => From::Start,
        };
        let mut request = Self {
            cursor: found.cursor,
            token: prng.one_in(8).then(|| Token::draw(prng)),
            is_old: prng.one_in(12),
            closes: prng.one_in(12),
            ..Self::new(room, from, live, facts)
        };
        if prng.one_in(25) {
            request.cursor = Some(1 << 50);
        }
        if let (Live::No, Some((etag, from))) = (live, &found.etag)
            && prng.one_in(2)
        {
            request.from = *from;
            request.etag = Some(etag.clone());
        }
        if prng.one_in(40) {
            request.faults = *prng.pick(&[&[400, 1][..], &[400, 2], &[401], &[400, 404, 410]]);
        }
        request.closes |= request.is_old && prng.one_in(2);
        request
    }

    /// What was known to be in the stream when it was asked for.
    pub(super) fn top(&self, epoch: [u8; 8]) -> u64 {
        self.tops.get(&epoch).copied().unwrap_or_default()
    }

    /// The status of its answer if a shard finds that the channel's namespace is not configured. None if no shard may find that.
    ///
    /// A shard reads the request, then looks at the token, then at the channel's name. So a namespace that has gone comes before the
    /// answer of the stream's home, which knows its offsets, and behind all other faults. Whoever shows a token is refused as a user.
    pub(super) fn status_without_namespace(&self, facts: &Facts) -> Option<u16> {
        let is_looked_at = matches!(self.faults, [] | [400, 404, 410]);
        let status = if self.token.is_some() { 403 } else { 400 };
        (is_looked_at && facts.may_be_unknown(self.room)).then_some(status)
    }

    /// Whether its token may count no more.
    pub(super) fn may_have_expired(&self, facts: &Facts) -> bool {
        let lasts = self.token.map(Token::lasts);
        lasts.is_some_and(|lasts| facts.may_have_passed(self.sent_at, lasts))
    }

    /// Whether its stream may have been missing since it was sent. If it was held at a quiet moment: since then, while it used the stream.
    pub(super) fn may_be_missing(&self, facts: &Facts) -> bool {
        let since = self.quiet.map_or(self.moment, |(moment, _)| moment);
        facts.may_be_missing(self.room, since, self.quiet.is_some())
    }

    /// Its bytes.
    pub(super) fn text(&self) -> String {
        let offset = match self.from {
            From::Start => "-1".to_owned(),
            From::Now => "now".to_owned(),
            From::After(at) if self.faults == [400, 404, 410] => {
                let offset = at.offset + 1_000_000;
                StreamOffset { offset, ..at }.to_string()
            }
            From::After(at) => at.to_string(),
        };
        let offset = match (self.faults, self.from) {
            ([400, 1], _) => "a,b".to_owned(),
            ([400, 404, 410], From::Start | From::Now) => "aaaaaaaa_0000000000000001".to_owned(),
            _ => offset,
        };
        let live = match (self.faults, self.live) {
            ([400, 2], _) => "&live=radio",
            (_, Live::No) => "",
            (_, Live::Poll) => "&live=long-poll",
            (_, Live::Events) => "&live=sse",
        };
        let name = ROOMS[self.room].name;
        let mut text = format!("GET /v1/stream/{name}?offset={offset}{live}");
        if let Some(cursor) = self.cursor {
            text += &format!("&cursor={cursor}");
        }
        text += if self.is_old {
            " HTTP/1.0"
        } else {
            " HTTP/1.1"
        };
        text += "\r\nHost: a\r\n";
        match (self.is_old, self.closes) {
            (false, true) => text += "Connection: close\r\n",
            (true, false) => text += "Connection: keep-alive\r\n",
            _ => {}
        }
        if let Some(etag) = &self.etag {
            text += &format!("If-None-Match: {etag}\r\n");
        }
        if self.faults == [401] {
            text += "Authorization: Bearer x\r\n";
        } else if let Some(token) = self.token {
            text += &format!("Authorization: Bearer {}\r\n", token.text());
        }
        text + "\r\n"
    }
}
