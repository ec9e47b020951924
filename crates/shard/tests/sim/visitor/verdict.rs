//! Whether what a visitor was told can be, and whether it was told everything.

use super::{Asked, SHUTDOWN, Visitor};
use crate::peer::Scene;
use crate::rooms::{ROOMS, Rooms, id_in, kind_of};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::centrifuge::client::History;
use std::collections::BTreeSet;

impl Visitor {
    /// Whether the reason that it was told can be.
    pub(crate) fn check_close(&self, scene: &Scene) {
        let Some(code) = self.close else { return };
        let settings = &scene.plan.settings;
        let personal = settings.client.personal_channel.as_ref();
        let is_single = personal.is_some_and(|personal| personal.single_connection);
        let may_lose = !self.expects_recovery;
        let is_plausible = match code {
            SHUTDOWN => scene.is_draining,
            1007 | 3500 | 3501 | 3508 => self.has_erred,
            3008 => may_lose,
            3010 => may_lose && personal.is_some() && self.has_user,
            3012 => !settings.ping_interval.is_zero(),
            3502 => self.client.is_none(),
            3504 => is_single && self.has_user,
            _ => false,
        };
        assert!(is_plausible, "visitor {}: close {code}", self.number);
    }

    /// Whether the publication at a place is left out for this client, because it is not JSON.
    pub(super) fn cannot_read(&self, rooms: &Rooms, room: usize, epoch: &str, offset: u64) -> bool {
        let id = rooms.id_at(room, epoch, offset);
        self.encoding == Encoding::Json && id.is_some_and(|id| !rooms.issued(id).is_json)
    }

    /// Publications in answers to this client follow each other, but for what it cannot read. What nobody has seen may be such.
    pub(super) fn check_order(
        &self,
        rooms: &Rooms,
        room: usize,
        epoch: &str,
        before: u64,
        offset: u64,
    ) {
        assert!(offset > before, "{}: back to {offset}", ROOMS[room]);
        let may_lack = |offset: u64| {
            let is_unseen = rooms.id_at(room, epoch, offset).is_none();
            self.cannot_read(rooms, room, epoch, offset)
                || is_unseen && self.encoding == Encoding::Json
        };
        let mut lacked = before + 1..offset;
        assert!(lacked.all(may_lack), "{}: a hole", ROOMS[room]);
    }

    pub(super) fn check_history(&self, room: usize, history: &History<'_>, rooms: &mut Rooms) {
        rooms.see_top(room, &history.epoch, history.offset);
        let mut last = None;
        for publication in &history.publications {
            if let Some(last) = last {
                self.check_order(rooms, room, &history.epoch, last, publication.offset);
            }
            assert!(publication.offset <= history.offset);
            last = Some(publication.offset);
            let id = id_in(publication.data.as_bytes());
            rooms.see(room, &history.epoch, publication.offset, id);
        }
    }

    // Quiet.

    /// Nothing is under way: everything has come.
    pub(crate) fn check_quiet(&self, rooms: &Rooms) {
        if self.is_connected() {
            let mut asked = self.asked.values();
            let unanswered = asked.find(|asked| matches!(asked, Asked::Rpc(..)));
            assert!(unanswered.is_none(), "not answered: {unanswered:?}");
        }
        for (&room, visit) in &self.visits {
            let kind = kind_of(room);
            let name = ROOMS[room];
            if kind.may_drop {
                continue;
            }
            for (id, issue) in rooms.issues.iter().enumerate().skip(visit.issued) {
                let is_own = kind.excludes_sender && issue.publisher == Some(self.number);
                let is_unreadable = !issue.is_json && self.encoding == Encoding::Json;
                assert!(
                    issue.room != room
                        || !issue.is_accepted
                        || is_own
                        || is_unreadable
                        || visit.received.contains(&(id as u64)),
                    "{name}: visitor {} has not got {id}",
                    self.number
                );
            }
            if kind.has_history && !kind.excludes_sender {
                let top = rooms.top(room, &visit.epoch);
                let mut passed = visit.offset + 1..=top;
                assert!(
                    passed.all(|offset| self.cannot_read(rooms, room, &visit.epoch, offset)),
                    "{name}: behind"
                );
            }
            for &gap in &visit.gaps {
                if self.cannot_read(rooms, room, &visit.epoch, gap) {
                    continue;
                }
                let id = rooms.id_at(room, &visit.epoch, gap);
                let publisher = id.map(|id| rooms.issued(id).publisher);
                let is_own = |publisher| kind.excludes_sender && publisher == Some(self.number);
                assert!(publisher.is_none_or(is_own), "{name}: {gap} was left out");
            }
        }
    }

    /// Those of whom it was told are members.
    pub(crate) fn check_joined(&self, room: usize, members: &BTreeSet<String>) {
        if let Some(visit) = self.visits.get(&room) {
            let gone = visit
                .joined
                .iter()
                .find(|client| !members.contains(*client));
            assert_eq!(gone, None, "{}: its leave was not told", ROOMS[room]);
        }
    }
}
