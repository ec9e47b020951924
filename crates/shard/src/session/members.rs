//! `presence` and `presence_stats`: member lists. They are gathered when a client asks, and stored nowhere.
//!
//! The shard of the client that asks sends one question to every shard, itself included. Each answers with its members in the
//! order of their client ids, and the asker merges the answers. A client that nobody asks about costs nothing. In a cluster, the control
//! plane answers for all other nodes, as one more shard would.

use super::questions::Question;
use super::refused::Act;
use super::{Asked, Failure};
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{ClientId, ClientInfo, Now, SubscriptionId, Ticket, UserHasher};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ErrorCode, FrameWriter, PresenceRequest};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Members of one answer at most. A member takes some 120 bytes as JSON, so that this many fit the default budget of a
/// connection's queue.
const PAGE_MEMBERS_MAX: usize = 5_000;

/// What is asked about a channel's members.
#[derive(Clone, Copy, Debug)]
pub enum MembersKind {
    /// The first members after this client id, by client id.
    Page {
        /// Members up to this one are left out.
        after: Option<ClientId>,
        /// Members at most.
        members_max: usize,
        /// The client wants all members, and would not know of a second page.
        is_whole: bool,
    },
    /// How many clients and users there are.
    Stats,
}

/// What a client wants to know of a channel's members.
#[derive(Debug)]
pub(super) struct MembersWish {
    pub(super) ticket: Ticket,
    pub(super) channel: Arc<str>,
    kind: MembersKind,
}

/// A question from one shard to all, and to the other nodes of a cluster.
#[derive(Clone, Debug)]
pub struct MembersQuestion {
    /// The channel.
    pub channel: Arc<str>,
    /// What is asked.
    pub kind: MembersKind,
    /// The shard that asks, and its name for the question.
    pub(crate) asker: (usize, u64),
    /// Hashes users alike on all that are asked.
    pub hasher: UserHasher,
}

/// What a shard says of a channel's members there.
#[derive(Debug, Default)]
pub struct MembersPage {
    /// Members in the order of their ids; none where they were only counted.
    pub members: Vec<ClientInfo>,
    /// Whether there are more members than may be answered.
    pub has_more: bool,
    /// Whether some of those that were asked did not answer: nothing can be said of all members then.
    pub is_partial: bool,
    /// Members that were counted.
    pub clients: u32,
    /// Hashes of their users, each once. They have 64 bits and a random key: among a million users, the chance that two are taken for
    /// one is one in 36 million.
    pub users: Vec<u64>,
}

/// Answers that are being gathered for a client.
#[derive(Debug)]
pub(crate) struct Gather {
    ticket: Ticket,
    kind: MembersKind,
    pages_remaining: usize,
    members: Vec<ClientInfo>,
    has_more: bool,
    is_partial: bool,
    clients: u32,
    users: HashSet<u64>,
}

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_presence(
        &mut self,
        key: Key,
        id: u32,
        request: &PresenceRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        self.check_members_right(key, &request.channel)?;
        let after = match &*request.cursor {
            "" => None,
            cursor => Some(ClientId::parse(cursor).ok_or(ErrorCode::BadRequest)?),
        };
        let wanted = match request.limit {
            0 => PAGE_MEMBERS_MAX,
            limit => {
                usize::try_from(limit).map_or(PAGE_MEMBERS_MAX, |limit| limit.min(PAGE_MEMBERS_MAX))
            }
        };
        let kind = MembersKind::Page {
            after,
            members_max: wanted,
            is_whole: request.limit == 0,
        };
        self.ask_members(key, id, &request.channel, kind, now)
    }

    pub(super) fn handle_presence_stats(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        now: Now,
    ) -> Result<(), Failure> {
        self.check_members_right(key, channel)?;
        self.ask_members(key, id, channel, MembersKind::Stats, now)
    }

    fn check_members_right(&self, key: Key, channel: &str) -> Result<(), Failure> {
        let (options, is_subscribed) = self.check_seen(key, channel)?;
        if !options.presence {
            let cause = "its namespace has no members to read (presence)";
            return Err(Failure::Caused(ErrorCode::NotAvailable, cause));
        }
        self.check_may(key, Act::ReadMembers, options.presence_read, is_subscribed)
    }

    fn ask_members(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        kind: MembersKind,
        now: Now,
    ) -> Result<(), Failure> {
        self.check_new_name(key, channel, now)?;
        let ticket = self.open_ticket(key, id)?;
        let wish = MembersWish {
            ticket,
            channel: channel.into(),
            kind,
        };
        self.sessions.lines.begin_question(key, channel);
        let question = Question::Members(Box::new(wish));
        self.sessions.questions.push(key, question);
        Ok(())
    }

    /// Asks all shards for what a client wishes to know.
    pub(super) fn gather_members(&mut self, wish: MembersWish) {
        self.sessions.last_gather += 1;
        let name = self.sessions.last_gather;
        let shards = self.mesh.shard_count();
        let has_nodes = self.mesh.has_broker();
        let gather = Gather {
            ticket: wish.ticket,
            kind: wish.kind,
            pages_remaining: shards + usize::from(has_nodes),
            members: Vec::new(),
            has_more: false,
            is_partial: false,
            clients: 0,
            users: HashSet::new(),
        };
        self.sessions.gathers.insert(name, gather);
        let question = MembersQuestion {
            channel: wish.channel,
            kind: wish.kind,
            asker: (self.index, name),
            hasher: UserHasher::new(RandomState::new().hash_one(name)),
        };
        for shard in 0..shards {
            self.send_message(shard, Message::Members(Box::new(question.clone())));
        }
        if has_nodes {
            self.mesh.ask_members(question);
        }
    }

    /// Answers another shard's question about a channel's members here.
    pub(crate) fn answer_members(&mut self, question: &MembersQuestion) {
        let (asker, gather) = question.asker;
        let page = match question.kind {
            MembersKind::Stats => self.members_stats(&question.channel, &question.hasher),
            MembersKind::Page {
                after, members_max, ..
            } => self.members_page(&question.channel, after, members_max),
        };
        let page = Box::new(page);
        self.send_message(asker, Message::MembersPage { gather, page });
    }

    /// Members with a session. One whose subscription is being made counts too, so that a client that subscribes and asks in one
    /// message finds itself.
    fn present(&self, channel: &str) -> impl Iterator<Item = (u32, SubscriptionId)> {
        let members = self.hub.members_of(channel);
        members
            .filter(|(connection, _, _)| self.hub.connection(*connection).has_session())
            .filter(|(_, subscription, _)| {
                let details = self.hub.details(*subscription);
                !details.is_some_and(|details| details.is_hidden)
            })
            .map(|(connection, subscription, _)| (connection, subscription))
    }

    /// How many clients a channel has here, and which users.
    pub(crate) fn members_stats(&self, channel: &str, hasher: &UserHasher) -> MembersPage {
        let mut users = HashSet::new();
        let mut clients = 0;
        for (connection, _) in self.present(channel) {
            clients += 1;
            // Anonymous clients are one user, the empty one.
            let user = self.hub.session(connection).user.as_deref();
            users.insert(hasher.hash_one(user.unwrap_or_default()));
        }
        MembersPage {
            clients,
            users: users.into_iter().collect(),
            ..MembersPage::default()
        }
    }

    /// The first members of a channel here after a client id.
    pub(crate) fn members_page(
        &self,
        channel: &str,
        after: Option<ClientId>,
        members_max: usize,
    ) -> MembersPage {
        let with_id = |(connection, subscription)| {
            let Some(key) = self.hub.key_of(connection) else {
                self.note_defect_of(connection, "a member is live");
                return None;
            };
            Some((self.client_id(key), key, subscription))
        };
        let mut members: Vec<_> = self
            .present(channel)
            .filter_map(with_id)
            .filter(|(id, ..)| after.is_none_or(|after| *id > after))
            .collect();
        let has_more = members.len() > members_max;
        if has_more {
            members.select_nth_unstable_by_key(members_max, |(id, ..)| *id);
            members.truncate(members_max);
        }
        members.sort_unstable_by_key(|(id, ..)| *id);
        let info = |(_, key, subscription): &(_, Key, SubscriptionId)| {
            self.client_info(*key, Some(*subscription))
        };
        MembersPage {
            members: members.iter().map(info).collect(),
            has_more,
            ..MembersPage::default()
        }
    }

    /// A shard has answered, or all other nodes have. After the last answer the client is answered.
    pub(crate) fn handle_members_page(&mut self, name: u64, page: MembersPage, now: Now) {
        let Some(gather) = self.sessions.gathers.get_mut(&name) else {
            return self.note_defect_of_message("each question is answered once");
        };
        gather.members.extend(page.members);
        gather.has_more |= page.has_more;
        gather.is_partial |= page.is_partial;
        gather.clients += page.clients;
        gather.users.extend(page.users);
        gather.pages_remaining -= 1;
        if gather.pages_remaining > 0 {
            return;
        }
        let Some(gather) = self.sessions.gathers.remove(&name) else {
            return;
        };
        let ticket = gather.ticket;
        let channel = self.sessions.questions.finish(ticket, None);
        if let Some(key) = self.close_ticket(ticket) {
            self.tell_members(key, gather, now);
        }
        self.end_question(ticket.connection, &channel, now);
    }

    fn tell_members(&mut self, key: Key, gather: Gather, now: Now) {
        if gather.is_partial {
            let refused = || Asked::command("presence", "");
            self.answer_error(key, gather.ticket, refused, ErrorCode::Internal, now);
            return;
        }
        let (ticket, is_cut_short) = (gather.ticket, gather.is_cut_short());
        // Who was closed over a list that does not fit would come back and ask for it again.
        if is_cut_short || !self.reply_if_it_fits(key, |writer| gather.write(writer)) {
            let code = ErrorCode::LimitExceeded;
            self.answer_error(key, ticket, || Asked::command("presence", ""), code, now);
        } else {
            self.finish_replies(key, now);
        }
    }
}

impl Gather {
    /// Whether the client wants all members, and an answer has no room for them. Part of a list must not pass for the whole.
    fn is_cut_short(&self) -> bool {
        match self.kind {
            MembersKind::Page {
                members_max,
                is_whole,
                ..
            } => is_whole && (self.has_more || self.members.len() > members_max),
            MembersKind::Stats => false,
        }
    }

    fn write(mut self, writer: &mut FrameWriter<'_>) {
        let command = self.ticket.command;
        let MembersKind::Page { members_max, .. } = self.kind else {
            let users = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
            return writer.presence_stats(command, self.clients, users);
        };
        self.members.sort_unstable_by_key(|info| info.client);
        let has_more = self.has_more || self.members.len() > members_max;
        self.members.truncate(members_max);
        let cursor = match self.members.last() {
            Some(last) if has_more => last.client.to_string(),
            _ => String::new(),
        };
        let ids: Vec<String> = self
            .members
            .iter()
            .map(|info| info.client.to_string())
            .collect();
        let members = self.members.iter().zip(&ids);
        writer.presence(command, members.map(|(info, id)| info.fields(id)), &cursor);
    }
}
