//! What the control plane asks shards. Most of it is answered at once. What walks over all channels or sessions is answered after some
//! turns, a slice in each, so that no client waits long.
//!
//! Changes `inquiries`; answers by `mesh`.

use crate::orders::OrderDone;
use crate::session::MembersPage;
use crate::shard::Shard;
use myriad_hub::{
    ChannelPattern, ClientId, HistoryAnswer, ReadFrom, RequestId, Since, StreamAnswer, StreamRead,
    UserHasher,
};
use myriad_reactor::Reactor;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Records of channels or sessions that a walk looks at in one turn: about half a millisecond.
const SLICE_RECORDS: usize = 4_096;

/// What the control plane asks a shard.
#[derive(Clone, Debug)]
pub enum Inquiry {
    /// The first members of a channel after a client id, in the order of their ids.
    Members {
        /// The channel.
        channel: Arc<str>,
        /// Members up to this one are left out.
        after: Option<ClientId>,
        /// Members at most.
        members_max: usize,
    },
    /// How many clients and users a channel has.
    MemberCounts {
        /// The channel.
        channel: Arc<str>,
        /// Hashes users alike on all that are asked.
        hasher: UserHasher,
    },
    /// The first channels with subscribers after a name, in the order of their bytes.
    Channels(ChannelsWish),
    /// How much there is of everything.
    Figures {
        /// Hashes users alike on all that are asked.
        hasher: UserHasher,
    },
}

/// Which channels are asked for.
#[derive(Clone, Debug)]
pub struct ChannelsWish {
    /// What their names match; none: all.
    pub pattern: Option<ChannelPattern>,
    /// Names up to this one are left out.
    pub after: Option<Box<str>>,
    /// Channels at most.
    pub channels_max: usize,
    /// Names that a shard looks at in a turn, at most: the fewer, the more it costs to match one.
    pub names_a_turn: usize,
}

/// What is read of a channel's history.
#[derive(Clone, Debug)]
pub struct HistoryWish {
    /// The channel.
    pub channel: Box<str>,
    /// Publications at most; none: all.
    pub limit: Option<u32>,
    /// Only what comes after this position; in reverse, what comes before it.
    pub since: Option<Since>,
    /// The newest first.
    pub reverse: bool,
}

/// What is read of a channel as a stream.
#[derive(Clone, Debug)]
pub struct StreamWish {
    /// The channel.
    pub channel: Box<str>,
    /// From where.
    pub from: ReadFrom,
    /// Bytes at most; the first publication may be larger.
    pub bytes_max: usize,
    /// Publications at most.
    pub publications_max: u32,
}

/// What a shard answers.
#[derive(Debug)]
pub enum InquiryAnswer {
    /// To [`Inquiry::Members`] and [`Inquiry::MemberCounts`].
    Members(MembersPage),
    /// To [`Inquiry::Channels`].
    Channels(ChannelsPage),
    /// To [`Inquiry::Figures`].
    Figures(Figures),
    /// What a channel keeps.
    History(HistoryAnswer),
    /// A channel keeps nothing any more.
    HistoryRemoved,
    /// What became of a stream.
    Stream(Box<StreamAnswer>),
    /// What a stream keeps.
    StreamRead(Box<StreamRead>),
    /// An order is carried out.
    Ordered(OrderDone),
}

/// Channels with subscribers on a shard.
#[derive(Debug, Default)]
pub struct ChannelsPage {
    /// Their names, and their clients on this shard. In no order.
    pub channels: Vec<(Arc<str>, u32)>,
    /// Whether this shard has more of them than it may answer.
    pub has_more: bool,
}

/// How much there is on a shard.
#[derive(Debug, Default)]
pub struct Figures {
    /// Connections of clients.
    pub clients: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Channels with subscribers anywhere, of those at home here.
    pub channels: u64,
    /// Hashes of the users with a session, each once; that of the empty name, if a client is anonymous.
    pub users: Vec<u64>,
}

/// Walks that are under way, the first of them next.
#[derive(Debug, Default)]
pub(crate) struct Inquiries(VecDeque<Walk>);

/// An answer that is being gathered.
#[derive(Debug)]
struct Walk {
    id: RequestId,
    kind: Kind,
    /// The record to look at next.
    from: u32,
}

#[derive(Debug)]
enum Kind {
    Channels {
        wish: ChannelsWish,
        /// The first that match, the last of them on top.
        found: BinaryHeap<(Arc<str>, u32)>,
        has_more: bool,
    },
    /// Users first, then the channels at home here.
    Users {
        hasher: UserHasher,
        figures: Figures,
        is_anonymous: bool,
    },
    Homes(Figures),
}

impl Inquiries {
    pub(crate) fn is_walking(&self) -> bool {
        !self.0.is_empty()
    }

    /// Who waits for the answers.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = RequestId> {
        self.0.iter().map(|walk| walk.id)
    }
}

impl<R: Reactor> Shard<R> {
    /// Answers the control plane, or begins a walk.
    pub(crate) fn handle_inquiry(&mut self, id: RequestId, inquiry: Inquiry) {
        let kind = match inquiry {
            Inquiry::Members {
                channel,
                after,
                members_max,
            } => {
                let page = self.members_page(&channel, after, members_max);
                return self.mesh.answered(id, InquiryAnswer::Members(page));
            }
            Inquiry::MemberCounts { channel, hasher } => {
                let page = self.members_stats(&channel, &hasher);
                return self.mesh.answered(id, InquiryAnswer::Members(page));
            }
            Inquiry::Channels(wish) => Kind::Channels {
                wish,
                found: BinaryHeap::new(),
                has_more: false,
            },
            Inquiry::Figures { hasher } => Kind::Users {
                hasher,
                figures: Figures {
                    clients: self.hub.connection_count() as u64,
                    subscriptions: self.hub.subscription_count() as u64,
                    ..Figures::default()
                },
                is_anonymous: false,
            },
        };
        self.inquiries.0.push_back(Walk { id, kind, from: 0 });
    }

    /// Walks a slice of the first walk. It goes on behind the others, or is answered.
    pub(crate) fn walk(&mut self) {
        let Some(Walk { id, kind, from }) = self.inquiries.0.pop_front() else {
            return;
        };
        let (kind, from) = match kind {
            Kind::Channels {
                wish,
                mut found,
                mut has_more,
            } => match self.walk_channels(&wish, from, &mut found, &mut has_more) {
                Some(from) => {
                    let kind = Kind::Channels {
                        wish,
                        found,
                        has_more,
                    };
                    (kind, from)
                }
                None => {
                    let channels = found.into_vec();
                    let page = ChannelsPage { channels, has_more };
                    return self.mesh.answered(id, InquiryAnswer::Channels(page));
                }
            },
            Kind::Users {
                hasher,
                mut figures,
                mut is_anonymous,
            } => match self.walk_users(&hasher, from, &mut figures, &mut is_anonymous) {
                Some(from) => {
                    let kind = Kind::Users {
                        hasher,
                        figures,
                        is_anonymous,
                    };
                    (kind, from)
                }
                None => {
                    let anonymous = is_anonymous.then(|| hasher.hash_one(""));
                    figures.users.extend(anonymous);
                    (Kind::Homes(figures), 0)
                }
            },
            Kind::Homes(mut figures) => match self.walk_homes(from, &mut figures) {
                Some(from) => (Kind::Homes(figures), from),
                None => return self.mesh.answered(id, InquiryAnswer::Figures(figures)),
            },
        };
        self.inquiries.0.push_back(Walk { id, kind, from });
    }

    /// Returns where to go on; none at the end.
    fn walk_channels(
        &self,
        wish: &ChannelsWish,
        mut from: u32,
        found: &mut BinaryHeap<(Arc<str>, u32)>,
        has_more: &mut bool,
    ) -> Option<u32> {
        for _ in 0..wish.names_a_turn.clamp(1, SLICE_RECORDS) {
            let (name, members, next) = self.hub.channel_from(from)?;
            from = next;
            let after = wish.after.as_deref();
            let is_full = found.len() == wish.channels_max;
            let is_behind = is_full && found.peek().is_some_and(|(last, _)| name > last);
            if members == 0
                || after.is_some_and(|after| **name <= *after)
                || is_behind && *has_more
                || wish
                    .pattern
                    .as_ref()
                    .is_some_and(|pattern| !pattern.matches(name))
            {
                continue;
            }
            let members = u32::try_from(members).unwrap_or(u32::MAX);
            found.push((Arc::clone(name), members));
            if found.len() > wish.channels_max {
                found.pop();
                *has_more = true;
            }
        }
        Some(from)
    }

    fn walk_users(
        &self,
        hasher: &UserHasher,
        mut from: u32,
        figures: &mut Figures,
        is_anonymous: &mut bool,
    ) -> Option<u32> {
        for _ in 0..SLICE_RECORDS {
            let (connection, next) = self.hub.session_from(from)?;
            from = next;
            let session = self.hub.session(connection);
            match &session.user {
                None => *is_anonymous = true,
                Some(user) if session.stands_for_user() => {
                    figures.users.push(hasher.hash_one(&**user));
                }
                Some(_) => {}
            }
        }
        Some(from)
    }

    fn walk_homes(&self, mut from: u32, figures: &mut Figures) -> Option<u32> {
        for _ in 0..SLICE_RECORDS {
            let (is_subscribed, next) = self.home.channel_from(from)?;
            from = next;
            figures.channels += u64::from(is_subscribed);
        }
        Some(from)
    }
}
