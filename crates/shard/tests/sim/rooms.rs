//! What the channels of clients with sessions must agree on, whoever tells it.

use myriad_shard::{Mesh, Payload};
use myriad_wire::centrifuge::Encoding;
use std::collections::{BTreeSet, HashMap};

/// Whether a publication of a channel has a position that clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) has_history: bool,
    pub(crate) excludes_sender: bool,
    /// Whoever reads too slowly loses some, and is not told.
    pub(crate) may_drop: bool,
    pub(crate) announces: bool,
}

/// The channels in use. The namespace of each decides its [`Kind`].
pub(crate) const ROOMS: [&str; 8] = [
    "plain", "other", "h:one", "h:two", "b:one", "x:one", "g:one", "o:one",
];

pub(crate) fn kind_of(room: usize) -> Kind {
    let namespace = ROOMS[room].split_once(':').map(|(namespace, _)| namespace);
    Kind {
        has_history: matches!(namespace, Some("h" | "b" | "x" | "g")),
        excludes_sender: namespace == Some("x"),
        may_drop: namespace == Some("o"),
        announces: namespace.is_none(),
    }
}

/// A publication that somebody made.
#[derive(Clone, Debug)]
pub(crate) struct Issue {
    pub(crate) room: usize,
    /// The client that published it; none for the application.
    pub(crate) publisher: Option<usize>,
    /// Clients that read only JSON can read it.
    pub(crate) is_json: bool,
    /// The server took it in: it must reach all who had subscribed before.
    pub(crate) is_accepted: bool,
}

/// All publications, and the one order that each channel has.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    pub(crate) issues: Vec<Issue>,
    /// Which publication has which offset.
    at: HashMap<(usize, String, u64), u64>,
    /// The offset of each publication.
    place_of: HashMap<u64, (String, u64)>,
    /// Which publication follows another one in a channel without positions, for those who read only JSON and for the others: some
    /// publications are no JSON.
    after: HashMap<(usize, bool, u64), u64>,
    /// The greatest offset that anybody was told.
    top: HashMap<(usize, String), u64>,
    pub(crate) memories: Vec<Memory>,
    /// What was reached, for the report.
    pub(crate) reached: BTreeSet<&'static str>,
}

/// Where somebody was when a subscription ended.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) room: usize,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
}

/// The data of a publication: a JSON text that begins with its number. Some are not JSON.
pub(crate) fn data_of(id: u64, size: usize, is_json: bool) -> Vec<u8> {
    let mut data = format!("\"{id:07}:{:.>size$}\"", "").into_bytes();
    if !is_json {
        data[0] = 0xff;
    }
    data
}

/// The number in the data of a publication, which must be whole.
pub(crate) fn id_in(data: &[u8]) -> u64 {
    let digits = data.get(1..8).expect("data as it was published");
    assert_eq!(data.last(), Some(&b'"'), "data as it was published");
    let digits = str::from_utf8(digits).expect("digits");
    digits.parse().expect("digits")
}

impl Rooms {
    /// A new publication and its number.
    pub(crate) fn issue(&mut self, room: usize, publisher: Option<usize>) -> u64 {
        self.issues.push(Issue {
            room,
            publisher,
            is_json: true,
            is_accepted: false,
        });
        self.issues.len() as u64 - 1
    }

    pub(crate) fn issued(&self, id: u64) -> &Issue {
        &self.issues[usize::try_from(id).expect("an index")]
    }

    pub(crate) fn accept(&mut self, id: u64) {
        self.issues[usize::try_from(id).expect("an index")].is_accepted = true;
    }

    /// The application publishes.
    pub(crate) fn publish(&mut self, mesh: &Mesh, room: usize, size: usize, is_json: bool) {
        let id = self.issue(room, None);
        self.issues[usize::try_from(id).expect("an index")].is_json = is_json;
        let data = data_of(id, size, is_json);
        let payload = match String::from_utf8(data) {
            Ok(json) => Payload::Json(json.into()),
            Err(error) => Payload::Binary(error.into_bytes().into()),
        };
        if mesh.publish(ROOMS[room], payload, None).is_ok() {
            self.accept(id);
        }
    }

    /// Somebody was told that a publication has an offset: everybody else is told the same.
    pub(crate) fn see(&mut self, room: usize, epoch: &str, offset: u64, id: u64) {
        assert_eq!(self.issued(id).room, room, "of another channel");
        let key = (room, epoch.to_owned(), offset);
        let known = *self.at.entry(key).or_insert(id);
        assert_eq!(known, id, "{}: two publications at {offset}", ROOMS[room]);
        let place = (epoch.to_owned(), offset);
        let known = self.place_of.entry(id).or_insert_with(|| place.clone());
        assert_eq!(*known, place, "a publication with two offsets");
        self.see_top(room, epoch, offset);
    }

    pub(crate) fn see_top(&mut self, room: usize, epoch: &str, offset: u64) {
        let top = self.top.entry((room, epoch.to_owned())).or_default();
        *top = offset.max(*top);
    }

    pub(crate) fn top(&self, room: usize, epoch: &str) -> u64 {
        let top = self.top.get(&(room, epoch.to_owned()));
        top.copied().unwrap_or(0)
    }

    /// Of an offset, if anybody has been told it.
    pub(crate) fn id_at(&self, room: usize, epoch: &str, offset: u64) -> Option<u64> {
        self.at.get(&(room, epoch.to_owned(), offset)).copied()
    }

    /// Somebody got one publication right after another: whoever gets both gets nothing between them.
    pub(crate) fn see_pair(&mut self, room: usize, encoding: Encoding, before: u64, id: u64) {
        let key = (room, encoding == Encoding::Json, before);
        let known = *self.after.entry(key).or_insert(id);
        assert_eq!(known, id, "{}: two follow {before}", ROOMS[room]);
    }
}
