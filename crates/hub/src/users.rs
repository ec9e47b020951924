//! Which sessions a user has. Costs 8 bytes of a session's record, and 2 to 4 bytes for each user.
//!
//! Each user's sessions are one list. Its first session stands in a hash table for all of them, so that a bucket is as long as it has
//! users, however many sessions one of them has. The table grows and shrinks by one bucket at a time (linear hashing), so that no
//! client waits while a million users are sorted anew. Anonymous clients are not listed: whoever wants them looks at all sessions.

use crate::session::Session;
use myriad_wheel::{NONE, Slab};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher};

/// Users of a bucket on average at most. With less than one the table shrinks.
const USERS_PER_BUCKET_MAX: usize = 2;

/// Buckets of one piece of the table: 16 KiB. A piece never moves.
const SEGMENT_BUCKETS: usize = 1 << 12;

/// Hashes the names of users alike wherever the seed is the same: on all shards, and on all nodes of a cluster. SipHash-1-3, so that
/// users who do not know the seed cannot choose names that are taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserHasher(u64);

impl UserHasher {
    /// With a seed, which must be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// What [`UserHasher::new`] takes.
    #[must_use]
    pub fn seed(self) -> u64 {
        self.0
    }
}

impl BuildHasher for UserHasher {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> Self::Hasher {
        SipHasher13::new_with_keys(self.0, 0)
    }
}

/// A session's place in the lists of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserLinks {
    /// The next session of the same user, or `NONE`.
    next: u32,
    /// Of a user's first session, the first session of the next user in its bucket; of another one, the session before it. Or
    /// `NONE`.
    link: u32,
}

impl UserLinks {
    /// Of a session that is in no list.
    pub(crate) const NONE: Self = Self {
        next: NONE,
        link: NONE,
    };
}

/// Finds the sessions of a user.
#[derive(Debug)]
pub(crate) struct UserIndex {
    seed: u64,
    /// The first session of the first user of each bucket, or `NONE`.
    segments: Vec<Box<[u32]>>,
    buckets: usize,
    users: usize,
    /// The session that the walk comes to next, or `NONE`.
    walk: u32,
}

impl UserIndex {
    /// Without users. The seed should be a secret: who knows it can choose names of users that meet in one bucket.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            segments: Vec::new(),
            buckets: 0,
            users: 0,
            walk: NONE,
        }
    }

    /// Users with a session.
    pub(crate) fn user_count(&self) -> usize {
        self.users
    }

    /// Lists a session, if it has a user.
    pub(crate) fn insert(&mut self, sessions: &mut Slab<Session>, index: u32) {
        let Some(user) = sessions[index].user.clone() else {
            return;
        };
        if self.buckets == 0 {
            self.add_bucket();
        }
        let bucket = self.bucket_of(&user);
        sessions[index].is_first_of_user = true;
        if let Some(first) = self.first_in(sessions, bucket, &user) {
            self.replace_first(sessions, first, index);
            let link = std::mem::replace(&mut sessions[first].user_links.link, index);
            sessions[first].is_first_of_user = false;
            sessions[index].user_links = UserLinks { next: first, link };
            return;
        }
        let link = self.replace_head(bucket, index);
        sessions[index].user_links = UserLinks { next: NONE, link };
        self.users += 1;
        if self.users > self.buckets * USERS_PER_BUCKET_MAX {
            self.grow(sessions);
        }
    }

    /// Takes a session out, if it is listed. It must still have the user that it was listed with.
    pub(crate) fn remove(&mut self, sessions: &mut Slab<Session>, index: u32) {
        let UserLinks { next, link } = sessions[index].user_links;
        if self.walk == index {
            self.walk = next;
        }
        sessions[index].user_links = UserLinks::NONE;
        if std::mem::take(&mut sessions[index].is_first_of_user) {
            let successor = if next == NONE { link } else { next };
            self.replace_first(sessions, index, successor);
            if next != NONE {
                sessions[next].user_links.link = link;
                sessions[next].is_first_of_user = true;
                return;
            }
            self.users -= 1;
            if self.buckets > 1 && self.users < self.buckets {
                self.shrink(sessions);
            }
        } else if link != NONE {
            sessions[link].user_links.next = next;
            if next != NONE {
                sessions[next].user_links.link = link;
            }
        }
    }

    /// The sessions of a user, the newest first.
    pub(crate) fn sessions_of<'a>(
        &self,
        sessions: &'a Slab<Session>,
        user: &str,
    ) -> impl Iterator<Item = u32> + 'a {
        let first = self.first_of(sessions, user);
        std::iter::successors(first, |&session| {
            let next = sessions[session].user_links.next;
            (next != NONE).then_some(next)
        })
    }

    /// Begins a walk over the sessions that a user has, instead of the walk that was under way.
    pub(crate) fn begin_walk(&mut self, sessions: &Slab<Session>, user: &str) {
        self.walk = self.first_of(sessions, user).unwrap_or(NONE);
    }

    /// The next session of the walk. Sessions may come and go between two calls: it meets every one that was there when it began
    /// and still is, once, and no newer one.
    pub(crate) fn walk_on(&mut self, sessions: &Slab<Session>) -> Option<u32> {
        let session = self.walk;
        if session == NONE {
            return None;
        }
        self.walk = sessions[session].user_links.next;
        Some(session)
    }

    fn first_of(&self, sessions: &Slab<Session>, user: &str) -> Option<u32> {
        if self.buckets == 0 {
            return None;
        }
        self.first_in(sessions, self.bucket_of(user), user)
    }

    fn first_in(&self, sessions: &Slab<Session>, bucket: usize, user: &str) -> Option<u32> {
        let mut first = self.head(bucket);
        while first != NONE && sessions[first].user.as_deref() != Some(user) {
            first = sessions[first].user_links.link;
        }
        (first != NONE).then_some(first)
    }

    /// Puts another session, or `NONE`, where a user's first session stands in its bucket.
    fn replace_first(&mut self, sessions: &mut Slab<Session>, first: u32, successor: u32) {
        let user = sessions[first].user.as_deref();
        // The lists of users are links between records. One without a user is another session's record: every further step could
        // name a stranger, so the process ends.
        let bucket = self.bucket_of(user.expect("a listed session has a user"));
        let mut before = self.head(bucket);
        if before == first {
            self.replace_head(bucket, successor);
            return;
        }
        while sessions[before].user_links.link != first {
            before = sessions[before].user_links.link;
        }
        sessions[before].user_links.link = successor;
    }

    /// Adds a bucket. Users of the bucket that it splits move to it, if their hash says so.
    fn grow(&mut self, sessions: &mut Slab<Session>) {
        let added = self.buckets;
        self.add_bucket();
        let split = partner_of(added);
        let mut first = self.replace_head(split, NONE);
        while first != NONE {
            let following = sessions[first].user_links.link;
            let user = sessions[first].user.as_deref();
            // As in `replace_first`.
            let bucket = self.bucket_of(user.expect("a listed session has a user"));
            debug_assert!(bucket == added || bucket == split);
            sessions[first].user_links.link = self.replace_head(bucket, first);
            first = following;
        }
    }

    /// Removes the last bucket. Its users move to the one that was split for it.
    fn shrink(&mut self, sessions: &mut Slab<Session>) {
        let last = self.buckets - 1;
        let mut first = self.head(last);
        self.buckets = last;
        if last.is_multiple_of(SEGMENT_BUCKETS) {
            self.segments.pop();
        }
        while first != NONE {
            let following = sessions[first].user_links.link;
            sessions[first].user_links.link = self.replace_head(partner_of(last), first);
            first = following;
        }
    }

    fn add_bucket(&mut self) {
        if self.buckets.is_multiple_of(SEGMENT_BUCKETS) {
            self.segments
                .push(vec![NONE; SEGMENT_BUCKETS].into_boxed_slice());
        }
        self.buckets += 1;
        self.replace_head(self.buckets - 1, NONE);
    }

    fn bucket_of(&self, user: &str) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(user.as_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are taken")]
        let hash = hasher.finish() as usize;
        let wide = hash & (self.buckets.next_power_of_two() - 1);
        if wide < self.buckets {
            wide
        } else {
            partner_of(wide)
        }
    }

    fn head(&self, bucket: usize) -> u32 {
        self.segments[bucket / SEGMENT_BUCKETS][bucket % SEGMENT_BUCKETS]
    }

    /// Answers what stood there before.
    fn replace_head(&mut self, bucket: usize, session: u32) -> u32 {
        let head = &mut self.segments[bucket / SEGMENT_BUCKETS][bucket % SEGMENT_BUCKETS];
        std::mem::replace(head, session)
    }

    /// Asserts that every session with a user is listed once, in its user's list. For tests.
    pub(crate) fn check(&self, sessions: &Slab<Session>) {
        let (mut users, mut listed) = (0, 0);
        for bucket in 0..self.buckets {
            let mut first = self.head(bucket);
            while first != NONE {
                let user = sessions[first].user.as_deref().expect("it has a user");
                assert!(sessions[first].is_first_of_user);
                assert_eq!(self.first_in(sessions, bucket, user), Some(first));
                assert_eq!(self.bucket_of(user), bucket);
                listed += 1;
                let mut before = first;
                for session in self.sessions_of(sessions, user).skip(1) {
                    assert!(!sessions[session].is_first_of_user);
                    assert_eq!(sessions[session].user.as_deref(), Some(user));
                    assert_eq!(sessions[session].user_links.link, before);
                    before = session;
                    listed += 1;
                }
                users += 1;
                first = sessions[first].user_links.link;
            }
        }
        let with_user = sessions
            .indices()
            .filter(|&index| sessions[index].user.is_some());
        assert_eq!(listed, with_user.count(), "a session is in one list");
        assert_eq!(users, self.users);
        assert!(self.users <= self.buckets * USERS_PER_BUCKET_MAX);
        assert_eq!(self.segments.len(), self.buckets.div_ceil(SEGMENT_BUCKETS));
    }
}

/// The bucket that was split when this one was added: without its highest bit.
fn partner_of(bucket: usize) -> usize {
    bucket & !(1 << bucket.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Few in Miri: all sessions are looked at after each.
    const OPS_MAX: usize = if cfg!(miri) { 60 } else { 400 };

    #[derive(Clone, Debug)]
    enum Op {
        Open {
            user: u16,
        },
        OpenAnonymous,
        /// One of those that are there.
        End {
            which: usize,
        },
        BeginWalk {
            user: u16,
        },
        WalkOn,
    }

    fn op() -> impl Strategy<Value = Op> {
        // A few users have many sessions, and many have one.
        let user = || prop_oneof![0..3_u16, 0..200_u16];
        prop_oneof![
            6 => user().prop_map(|user| Op::Open { user }),
            1 => Just(Op::OpenAnonymous),
            4 => any::<usize>().prop_map(|which| Op::End { which }),
            1 => user().prop_map(|user| Op::BeginWalk { user }),
            3 => Just(Op::WalkOn),
        ]
    }

    fn name(user: u16) -> Arc<str> {
        format!("user {user}").into()
    }

    /// What a walk has met, and what it must still meet.
    #[derive(Default)]
    struct Walk {
        must_meet: BTreeSet<u32>,
    }

    struct World {
        index: UserIndex,
        sessions: Slab<Session>,
        /// In the order they came.
        live: Vec<(u32, Option<u16>)>,
        walk: Walk,
    }

    impl World {
        fn new() -> Self {
            Self {
                index: UserIndex::new(7),
                sessions: Slab::new(),
                live: Vec::new(),
                walk: Walk::default(),
            }
        }

        fn open(&mut self, user: Option<u16>) -> u32 {
            let session = Session::new(0, user.map(name));
            let session = self.sessions.insert(session).index;
            self.index.insert(&mut self.sessions, session);
            self.live.push((session, user));
            session
        }

        fn end(&mut self, session: u32) {
            self.index.remove(&mut self.sessions, session);
            self.sessions.remove(session);
            self.live.retain(|(live, _)| *live != session);
            self.walk.must_meet.remove(&session);
        }

        /// The newest first.
        fn of(&self, user: u16) -> impl Iterator<Item = u32> {
            let of =
                move |(session, of): &(u32, Option<u16>)| (*of == Some(user)).then_some(*session);
            self.live.iter().rev().filter_map(of)
        }

        fn walk_on(&mut self) {
            let Some(session) = self.index.walk_on(&self.sessions) else {
                assert_eq!(self.walk.must_meet, BTreeSet::new(), "the walk ended early");
                return;
            };
            assert!(self.walk.must_meet.remove(&session), "met twice, or new");
        }

        fn carry_out(&mut self, op: &Op) {
            match *op {
                Op::Open { user } => {
                    self.open(Some(user));
                }
                Op::OpenAnonymous => {
                    self.open(None);
                }
                Op::End { which } => {
                    let count = self.live.len().max(1);
                    let session = self.live.get(which % count).copied();
                    session
                        .into_iter()
                        .for_each(|(session, _)| self.end(session));
                }
                Op::BeginWalk { user } => {
                    self.index.begin_walk(&self.sessions, &name(user));
                    self.walk = Walk {
                        must_meet: self.of(user).collect(),
                    };
                }
                Op::WalkOn => self.walk_on(),
            }
        }

        fn check(&self) {
            self.index.check(&self.sessions);
            let users: BTreeSet<_> = self.live.iter().filter_map(|(_, user)| *user).collect();
            assert_eq!(self.index.user_count(), users.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
        #[test]
        fn every_user_has_his_sessions(ops in prop::collection::vec(op(), 1..OPS_MAX)) {
            let mut world = World::new();
            for op in &ops {
                world.carry_out(op);
                world.check();
            }
            for user in 0..200 {
                let listed = world.index.sessions_of(&world.sessions, &name(user));
                prop_assert!(listed.eq(world.of(user)));
            }
            while !world.walk.must_meet.is_empty() {
                world.walk_on();
            }
            for (session, _) in world.live.clone() {
                world.end(session);
            }
            world.check();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of users take minutes")]
    fn the_table_follows_its_users_by_one_bucket_at_a_time() {
        let mut world = World::new();
        let users = u16::try_from(SEGMENT_BUCKETS * 3).unwrap();
        let mut sessions = Vec::new();
        for user in 0..users {
            let before = world.index.buckets;
            sessions.push(world.open(Some(user)));
            assert!(world.index.buckets - before <= 1);
        }
        assert_eq!(world.index.segments.len(), 2);
        world.check();
        for session in sessions {
            let before = world.index.buckets;
            world.end(session);
            assert!(before - world.index.buckets <= 1);
        }
        world.check();
        assert_eq!(world.index.buckets, 1);
        assert_eq!(world.index.segments.len(), 1);
    }

    #[test]
    fn a_user_with_many_sessions_is_one_entry() {
        const MANY: usize = if cfg!(miri) { 50 } else { 5_000 };
        let mut world = World::new();
        let sessions: Vec<u32> = (0..MANY).map(|_| world.open(Some(1))).collect();
        assert_eq!((world.index.buckets, world.index.user_count()), (1, 1));
        // From the first one on, which costs a new first one each time.
        for session in sessions {
            world.end(session);
        }
        assert_eq!(world.index.user_count(), 0);
    }
}
