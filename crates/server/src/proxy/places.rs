//! Places for the calls of one proxy: how many are under way, who waits for one, and whose turn it is.
//!
//! Each client that waits has a line of its own, and the lines take turns. So a client that asks for much waits behind itself, and
//! not the others behind it. It may also have only a part of the room that is left ([`Bounds`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A client may have so many calls, however many others wait.
const SHARE_MIN: usize = 8;
/// One client may have this part of the room that is left.
const SHARE_DIVISOR: usize = 4;

/// How many calls there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Under way.
    pub(super) calls_max: usize,
    /// That wait to be.
    pub(super) waiting_max: usize,
}

/// Why there is no place for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// As many calls wait as may.
    Full,
    /// The client has its share of the calls.
    Share,
    /// The call has waited as long as it may.
    Late,
}

/// The places of a proxy. `K` names a client.
#[derive(Debug)]
pub(super) struct Places<K> {
    bounds: Bounds,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// Places that nobody has. Nobody waits while there are some.
    free: usize,
    waiting: usize,
    /// Calls of each client, under way or waiting.
    calls: HashMap<K, usize>,
    lines: HashMap<K, Line>,
    /// The clients with a line, in the order of their turns.
    turns: BTreeMap<u64, K>,
    last_serial: u64,
}

/// The calls of one client that wait. It is never empty.
#[derive(Debug)]
struct Line {
    /// Its key among the turns.
    turn: u64,
    calls: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A call's place, or its wait for one. Dropped, it gives back what it has.
#[derive(Debug)]
pub(super) struct Place<'a, K: Copy + Eq + Hash> {
    places: &'a Places<K>,
    client: K,
    /// Names its wait; 0 if it has not waited.
    serial: u64,
}

impl<K: Copy + Eq + Hash> Places<K> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            state: Mutex::new(State {
                free: bounds.calls_max,
                waiting: 0,
                calls: HashMap::new(),
                lines: HashMap::new(),
                turns: BTreeMap::new(),
                last_serial: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a call of this client, if one is free.
    ///
    /// # Errors
    /// The client has its share.
    pub(super) fn take_free(&self, client: K) -> Result<Option<Place<'_, K>>, NoPlace> {
        let mut state = self.state();
        state.check_share(client, self.bounds)?;
        if state.free == 0 {
            return Ok(None);
        }
        state.free -= 1;
        Ok(Some(self.counted(&mut state, client, 0)))
    }

    /// A place for a call of this client, when it is its turn.
    ///
    /// # Errors
    /// It may not wait, or has waited for so long.
    pub(super) async fn wait(
        &self,
        client: K,
        patience: Duration,
    ) -> Result<Place<'_, K>, NoPlace> {
        let (place, granted) = self.queue(client)?;
        match timeout(patience, granted).await {
            Ok(Ok(())) => Ok(place),
            // A sender is dropped only with its wait, which `place` has.
            Ok(Err(_)) | Err(_) => Err(NoPlace::Late),
        }
    }

    fn queue(&self, client: K) -> Result<(Place<'_, K>, oneshot::Receiver<()>), NoPlace> {
        let mut state = self.state();
        state.check_share(client, self.bounds)?;
        let (granter, granted) = oneshot::channel();
        if state.free > 0 {
            // One was given back in the meantime.
            state.free -= 1;
            let _ = granter.send(());
            return Ok((self.counted(&mut state, client, 0), granted));
        }
        if state.waiting >= self.bounds.waiting_max {
            return Err(NoPlace::Full);
        }
        let serial = state.push(client, granter);
        Ok((self.counted(&mut state, client, serial), granted))
    }

    fn counted(&self, state: &mut State<K>, client: K, serial: u64) -> Place<'_, K> {
        *state.calls.entry(client).or_default() += 1;
        Place {
            places: self,
            client,
            serial,
        }
    }

    /// Nobody has a place or waits for one, for checks.
    #[cfg(test)]
    fn is_unused(&self) -> bool {
        let state = self.state();
        let is_empty = state.lines.is_empty() && state.turns.is_empty() && state.calls.is_empty();
        is_empty && state.waiting == 0 && state.free == self.bounds.calls_max
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    fn check_share(&self, client: K, bounds: Bounds) -> Result<(), NoPlace> {
        let under_way = bounds.calls_max - self.free;
        let room = bounds.calls_max + bounds.waiting_max - under_way - self.waiting;
        let share = SHARE_MIN.max(room / SHARE_DIVISOR);
        match self.calls.get(&client) {
            Some(calls) if *calls >= share => Err(NoPlace::Share),
            _ => Ok(()),
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Puts a call into its client's line. Returns its serial.
    fn push(&mut self, client: K, granter: oneshot::Sender<()>) -> u64 {
        let serial = self.next_serial();
        self.waiting += 1;
        let line = self.lines.entry(client).or_insert_with(|| {
            self.turns.insert(serial, client);
            Line {
                turn: serial,
                calls: VecDeque::new(),
            }
        });
        line.calls.push_back((serial, granter));
        serial
    }

    /// Takes a call out of its client's line; false if it is not there, because it has got a place.
    fn remove(&mut self, client: K, serial: u64) -> bool {
        let Some(line) = self.lines.get_mut(&client) else {
            return false;
        };
        let before = line.calls.len();
        line.calls.retain(|(waiting, _)| *waiting != serial);
        let is_removed = line.calls.len() < before;
        if line.calls.is_empty() {
            self.turns.remove(&line.turn);
            self.lines.remove(&client);
        }
        self.waiting -= usize::from(is_removed);
        is_removed
    }

    /// A place is free: the next one in turn gets it.
    fn give_back(&mut self) {
        let Some((_, client)) = self.turns.pop_first() else {
            self.free += 1;
            return;
        };
        let turn = self.next_serial();
        let line = self.lines.get_mut(&client);
        let Some((line, granter)) = line.and_then(|line| {
            let (_, granter) = line.calls.pop_front()?;
            Some((line, granter))
        }) else {
            debug_assert!(false, "whose turn it is waits, and a line is never empty");
            self.free += 1;
            return;
        };
        self.waiting -= 1;
        if line.calls.is_empty() {
            self.lines.remove(&client);
        } else {
            line.turn = turn;
            self.turns.insert(turn, client);
        }
        // If its receiver has gone, its `Place` is being dropped and gives the place back.
        let _ = granter.send(());
    }
}

impl<K: Copy + Eq + Hash> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let mut state = self.places.state();
        if let Some(calls) = state.calls.get_mut(&self.client) {
            *calls -= 1;
            if *calls == 0 {
                state.calls.remove(&self.client);
            }
        }
        if self.serial == 0 || !state.remove(self.client, self.serial) {
            state.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(calls_max: usize, waiting_max: usize) -> Places<char> {
        Places::new(Bounds {
            calls_max,
            waiting_max,
        })
    }

    type Wait<'a> = (Place<'a, char>, oneshot::Receiver<()>);

    fn has_place(wait: &mut Wait<'_>) -> bool {
        wait.1.try_recv().is_ok()
    }

    #[test]
    fn clients_that_wait_take_turns() {
        let places = places(1, 40);
        let mut under_way = places.take_free('a').unwrap();
        let mut waits: Vec<(char, Wait<'_>)> = "aaabac"
            .chars()
            .map(|client| (client, places.queue(client).unwrap()))
            .collect();
        let mut order = String::new();
        while !waits.is_empty() {
            drop(under_way.take());
            let next = waits.iter_mut().position(|(_, wait)| has_place(wait));
            let (client, (place, _)) = waits.remove(next.expect("somebody has it"));
            order.push(client);
            under_way = Some(place);
        }
        assert_eq!(order, "abcaaa");
        drop(under_way);
        assert!(places.is_unused());
    }

    #[test]
    fn a_client_has_its_share_and_leaves_the_rest() {
        let places = places(8, 56);
        let mut held = Vec::new();
        let refused = loop {
            match places.queue('a') {
                Ok(wait) => held.push(wait),
                Err(refused) => break refused,
            }
        };
        // 13 are a quarter of the 51 or 52 that are left.
        assert_eq!((refused, held.len()), (NoPlace::Share, 13));
        assert!(places.queue('b').is_ok());
        assert_eq!(places.take_free('a').unwrap_err(), NoPlace::Share);
        held.pop();
        assert!(places.queue('a').is_ok());
        drop(held);
        assert!(places.is_unused());
    }

    #[test]
    fn as_many_wait_as_may() {
        let places = places(1, 2);
        let place = places.take_free('a').unwrap();
        assert!(places.take_free('b').unwrap().is_none());
        let waits = [places.queue('b').unwrap(), places.queue('c').unwrap()];
        assert_eq!(places.queue('d').unwrap_err(), NoPlace::Full);
        drop(place);
        assert!(places.queue('d').is_ok());
        drop(waits);
        assert!(places.is_unused());
    }

    #[test]
    fn whoever_gives_up_leaves_nothing_behind() {
        let places = places(1, 40);
        let place = places.take_free('a').unwrap();
        let given_up = [places.queue('b').unwrap(), places.queue('b').unwrap()];
        let mut last = places.queue('c').unwrap();
        drop(given_up);
        drop(place);
        assert!(has_place(&mut last));
        // It had got a place and did not take it.
        let mut next = places.queue('d').unwrap();
        drop(last);
        assert!(has_place(&mut next));
        drop(next);
        assert!(places.is_unused());
    }

    #[test]
    fn a_wait_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let places = places(1, 1);
        let place = places.take_free('a').unwrap();
        let waited = runtime.block_on(places.wait('b', Duration::from_secs(3)));
        assert_eq!(waited.unwrap_err(), NoPlace::Late);
        drop(place);
        let waited = runtime.block_on(places.wait('b', Duration::from_secs(3)));
        assert!(waited.is_ok());
        drop(waited);
        assert!(places.is_unused());
    }
}
