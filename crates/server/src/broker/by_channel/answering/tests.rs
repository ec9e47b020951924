//! Fills with a small budget, of servers that have one channel.

use super::*;
use crate::broker::State;
use crate::broker::fill_budget::{FillBudget, bytes_of};
use crate::broker::link::BrokerError;
use crate::broker::servers::{
    Ack, Feed, Listener, NotStored, Page, PageSize, Part, Servers, ToStore, Way, Which,
};
use crate::broker::settings::BrokerInterest;
use crate::broker::tests::simulate;
use bytes::Bytes;
use myriad_broker::{Interest, Subjects, Task};
use myriad_shard::{ChannelOptions, Epoch, LogId, Namespaces, Partitions, Told};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::yield_now;
use tokio::time::timeout;

const CHANNEL: &str = "log:a";
/// Messages of a page.
const PAGE: usize = 3;
/// Messages that the budget is for, but for one byte.
const MESSAGES: usize = 8;
/// An answer that waits for nothing is there before.
const SOON: Duration = Duration::from_secs(1);

fn stored(subject: &str, sequence: u64) -> Stored {
    Stored {
        sequence,
        stored_ns: i128::from(sequence),
        subject: subject.into(),
        headers: None,
        payload: Bytes::from_static(&[7; 100]),
        is_spoiled: false,
    }
}

/// The messages of the channel, from 1 on. All others are asked for nothing.
#[derive(Debug)]
struct OneChannel {
    last: u64,
    /// Messages of a page.
    page: usize,
    /// When so many pages were read, the messages before that place go.
    goes: Option<(usize, u64)>,
    /// Each page has the first message again, and says that there are more.
    repeats: bool,
    /// A page from there on cannot be read.
    breaks_at: Option<u64>,
    /// Pages that were asked for.
    pages: AtomicUsize,
    /// Those that are asked for now, and the most that ever were.
    pages_at_once: AtomicUsize,
    pages_at_once_max: AtomicUsize,
}

impl OneChannel {
    fn up_to(last: u64) -> Self {
        Self {
            last,
            page: PAGE,
            goes: None,
            repeats: false,
            breaks_at: None,
            pages: AtomicUsize::new(0),
            pages_at_once: AtomicUsize::new(0),
            pages_at_once_max: AtomicUsize::new(0),
        }
    }
}

impl Servers for OneChannel {
    fn can_store(&self) -> bool {
        true
    }

    fn can_send(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, _: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>> {
        unreachable!("it is open")
    }

    fn extent<'a>(&'a self, _: &'a Log) -> BoxFuture<'a, Result<Extent, FeedError>> {
        let last = self.last;
        Box::pin(async move { Ok(Extent { first: 1, last }) })
    }

    fn follow<'a>(&'a self, _: &'a Log, _: u64) -> BoxFuture<'a, Result<Box<dyn Feed>, FeedError>> {
        unreachable!("nobody reads the whole log")
    }

    fn listen<'a>(&'a self, _: &'a Log) -> BoxFuture<'a, Result<Box<dyn Listener>, FeedError>> {
        unreachable!("nobody listens")
    }

    fn last_by_subject<'a>(
        &'a self,
        _: &'a Log,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<LastBySubject, FeedError>> {
        unreachable!("last messages are known")
    }

    fn page<'a>(
        &'a self,
        _: &'a Log,
        subject: &'a str,
        from: u64,
        _: PageSize,
    ) -> BoxFuture<'a, Result<Page, FeedError>> {
        Box::pin(async move {
            let at_once = self.pages_at_once.fetch_add(1, Ordering::Relaxed) + 1;
            self.pages_at_once_max.fetch_max(at_once, Ordering::Relaxed);
            // Others get their pages meanwhile.
            yield_now().await;
            self.pages_at_once.fetch_sub(1, Ordering::Relaxed);
            let pages = self.pages.fetch_add(1, Ordering::Relaxed);
            if self.breaks_at == Some(from) {
                return Err(FeedError::Cut);
            }
            let oldest = self.goes.filter(|(after, _)| pages >= *after);
            let begin = match oldest {
                _ if self.repeats => 1,
                Some((_, oldest)) => from.max(oldest),
                None => from,
            };
            let places = (begin..=self.last).take(self.page);
            let messages: Vec<_> = places.map(|place| stored(subject, place)).collect();
            let has_more = messages
                .last()
                .is_some_and(|message| message.sequence < self.last);
            Ok(Page { messages, has_more })
        })
    }

    fn look<'a>(
        &'a self,
        _: Way,
        _: &'a Log,
        _: Which<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, FeedError>> {
        unreachable!("pages say enough")
    }

    fn store<'a>(&'a self, _: &'a Log, _: ToStore) -> BoxFuture<'a, Result<Ack, NotStored>> {
        unreachable!("nobody publishes")
    }

    fn send(&self, _: ToStore) -> BoxFuture<'_, bool> {
        unreachable!("nobody publishes")
    }

    fn leave_server(&self, _: &Log, _: Part) {}

    fn tell(&self, _: Told) {}
}

/// One byte less than [`MESSAGES`] messages have.
fn budget_bytes() -> usize {
    MESSAGES * bytes_of(&stored(CHANNEL, 1)) - 1
}

/// A node with a small budget. Its channel has messages up to that place.
fn link(last: u64) -> Arc<Link> {
    link_to(Arc::new(OneChannel::up_to(last)))
}

/// A node with a small budget.
fn link_to(servers: Arc<OneChannel>) -> Arc<Link> {
    link_of_logs(servers, 1)
}

/// A node with a small budget, and so many logs.
fn link_of_logs(servers: Arc<OneChannel>, count: u16) -> Arc<Link> {
    let logs = Partitions {
        first: LogId(0),
        count,
    };
    let options = ChannelOptions {
        logs: Some(logs),
        history_size: 5,
        history_ttl: Duration::from_secs(300),
        ..ChannelOptions::default()
    };
    let named = [("log".into(), options)];
    let namespaces = Namespaces::new(ChannelOptions::default(), named);
    let link = Link::new(
        servers,
        Subjects::new("my").expect("a prefix"),
        Arc::new(namespaces),
        "node".to_owned(),
        Arc::new(State::default()),
        || None,
        BrokerInterest::Channel,
    );
    let fill_budget = FillBudget::new(u32::try_from(budget_bytes()).expect("it is little"));
    Arc::new(Link {
        fill_budget,
        ..link
    })
}

/// What the channel lacks when it is wanted anew.
fn fill_up_to(place: u64) -> Fill {
    let mut interest: Interest<Stored> = Interest::new(266);
    let channel: Arc<str> = CHANNEL.into();
    interest.want(&channel);
    interest.handle_listening(Epoch::new(1));
    interest.handle_fence(place);
    loop {
        match interest.poll_task().expect("the channel lacks something") {
            Task::Ask(asked) => {
                let last = LastByChannel {
                    watermark: place,
                    first: 1,
                    places: BTreeMap::from([(Arc::clone(&channel), place)]),
                };
                interest.handle_last_by_channel(&asked, &last);
            }
            Task::Fill(fill) => return fill,
            _ => {}
        }
    }
}

/// What the channel lacks if all but its last page is known.
fn fill_of_one_page(last: u64) -> Fill {
    let mut fill = fill_up_to(last);
    fill.from = last - 1;
    fill
}

/// The places of what was read, whether something was given up, and its share.
fn filled(answer: Result<Answer, NoAnswer>) -> (Vec<u64>, bool, FillShare) {
    match answer {
        Ok(Answer::Filled {
            filled: Some(filled),
            share,
            ..
        }) => {
            let places = filled.messages.iter().map(|(place, _)| *place);
            (places.collect(), filled.is_cut, share)
        }
        other => panic!("{other:?}"),
    }
}

/// The next answer, which waits for nothing.
async fn soon(answering: &mut Answering) -> (Vec<u64>, bool, FillShare) {
    let answer = timeout(SOON, answering.next()).await;
    filled(answer.expect("an answer that waits for nothing"))
}

/// Whether the next answer waits for something.
async fn waits(answering: &mut Answering) -> bool {
    timeout(SOON, answering.next()).await.is_err()
}

#[test]
fn a_fill_without_budget_begins_again_when_the_others_have_ended() {
    simulate(async {
        let last = 6;
        let link = link(last);
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        answering.fill(fill_up_to(last));
        answering.fill(fill_up_to(last));
        let (places, is_cut, share) = filled(answering.next().await);
        assert_eq!((places, is_cut), ((1..=last).collect(), false));
        let waits = timeout(Duration::from_secs(1), answering.next()).await;
        assert!(waits.is_err(), "homes have not been told of the first one");
        drop(share);
        let (places, is_cut, share) = filled(answering.next().await);
        assert_eq!((places, is_cut), ((1..=last).collect(), false));
        drop(share);
        let mut all = link.fill_budget.empty_share();
        assert!(all.grow_to(budget_bytes()), "everything was given back");
    });
}

#[test]
fn a_channel_with_more_than_the_budget_lacks_its_oldest_messages() {
    simulate(async {
        let link = link(12);
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        answering.fill(fill_up_to(12));
        let (places, is_cut, share) = filled(answering.next().await);
        assert_eq!((places, is_cut), ((6..=12).collect(), true));
        assert!(share.is_whole());
    });
}

#[test]
fn what_goes_while_pages_are_read_takes_nothing_behind_it_along() {
    // Pages are 1 to 3, 3 to 5, and 5 to 6.
    for (goes, begin) in [
        (None, 1),
        (Some((1, 3)), 1),
        (Some((2, 5)), 1),
        (Some((1, 4)), 4),
        (Some((2, 6)), 6),
    ] {
        simulate(async move {
            let last = 6;
            let servers = OneChannel {
                goes,
                ..OneChannel::up_to(last)
            };
            let link = link_to(Arc::new(servers));
            let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
            answering.fill(fill_up_to(last));
            let (places, is_cut, _) = filled(answering.next().await);
            let expected = ((begin..=last).collect(), begin > 1);
            assert_eq!((places, is_cut), expected, "{goes:?}");
        });
    }
}

#[test]
fn a_channel_with_one_message_in_a_page_has_its_last_one() {
    simulate(async {
        let servers = OneChannel {
            page: 1,
            ..OneChannel::up_to(3)
        };
        let link = link_to(Arc::new(servers));
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        answering.fill(fill_up_to(3));
        let (places, is_cut, _) = filled(answering.next().await);
        assert_eq!((places, is_cut), (vec![3], true));
    });
}

#[test]
fn a_server_that_repeats_itself_does_not_hold_a_fill_for_ever() {
    simulate(async {
        let servers = OneChannel {
            repeats: true,
            ..OneChannel::up_to(6)
        };
        let link = link_to(Arc::new(servers));
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        answering.fill(fill_up_to(6));
        let end = timeout(2 * PATIENCE_MIN, answering.next()).await;
        assert!(matches!(end, Ok(Ok(Answer::Filled { filled: None, .. }))));
    });
}

#[test]
fn fills_of_one_page_wait_for_no_more_than_they_need() {
    simulate(async {
        let last = 6;
        let servers = Arc::new(OneChannel::up_to(last));
        let link = link_to(Arc::clone(&servers));
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        let mut others = link.fill_budget.empty_share();
        assert!(others.grow_to(budget_bytes() / 2));
        answering.fill(fill_up_to(last));
        assert!(waits(&mut answering).await, "for all of the budget");
        for _ in 0..3 {
            answering.fill(fill_of_one_page(last));
        }
        assert!(waits(&mut answering).await, "for their turn");
        drop(others);
        let (places, _, whole) = soon(&mut answering).await;
        assert_eq!(places, [1, 2, 3, 4, 5, 6]);
        assert!(waits(&mut answering).await, "for the first one's share");
        drop(whole);
        // Homes have not been told of one when the next one comes.
        let mut untold = Vec::new();
        for _ in 0..3 {
            let (places, is_cut, share) = soon(&mut answering).await;
            assert_eq!((places, is_cut), (vec![5, 6], false));
            untold.push(share);
        }
        let mut free = link.fill_budget.empty_share();
        let used = 6 * bytes_of(&stored(CHANNEL, 1));
        assert!(free.grow_to(budget_bytes() - used), "they have too much");
        assert!(!free.grow_to(budget_bytes() - used + 1), "not counted");
        let pages = servers.pages.load(Ordering::Relaxed);
        assert_eq!(pages, 2 + 3 + 3, "only the first one was read again");
    });
}

#[test]
fn a_node_with_many_logs_reads_fewer_pages_of_each_at_once() {
    for (logs, at_once_max) in [(1, 10), (64, 4), (300, 1)] {
        simulate(async move {
            let last = 2;
            let servers = Arc::new(OneChannel::up_to(last));
            let link = link_of_logs(Arc::clone(&servers), logs);
            let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
            for _ in 0..10 {
                answering.fill(fill_of_one_page(last));
            }
            for _ in 0..10 {
                let (places, _, share) = soon(&mut answering).await;
                assert_eq!(places, [1, 2]);
                drop(share);
            }
            let most = servers.pages_at_once_max.load(Ordering::Relaxed);
            assert_eq!(most, at_once_max, "{logs} logs");
        });
    }
}

#[test]
fn a_fill_that_cannot_end_has_no_share_while_it_pauses() {
    let is_behind = OneChannel::up_to(6);
    let breaks_off = OneChannel {
        breaks_at: Some(5),
        ..OneChannel::up_to(7)
    };
    for servers in [is_behind, breaks_off] {
        simulate(async move {
            let last = servers.last;
            let link = link_to(Arc::new(servers));
            let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
            answering.fill(fill_up_to(7));
            let pauses = timeout(PAUSE / 2, answering.next()).await;
            assert!(pauses.is_err());
            let mut others = link.fill_budget.empty_share();
            assert!(others.grow_to(budget_bytes()), "it kept its share");
            // Now it waits for all of the budget, gets it, and fails again.
            let waits = timeout(PAUSE, answering.next()).await;
            assert!(waits.is_err());
            drop(others);
            let pauses = timeout(PAUSE / 2, answering.next()).await;
            assert!(pauses.is_err());
            let mut others = link.fill_budget.empty_share();
            assert!(others.grow_to(budget_bytes()), "it kept all of the budget");
            drop(others);
            answering.fill(fill_of_one_page(last));
            let (places, _, share) = soon(&mut answering).await;
            assert_eq!(places, [last - 1, last]);
            drop(share);
            let end = timeout(2 * PATIENCE_MIN, answering.next()).await;
            assert!(matches!(end, Ok(Ok(Answer::Filled { filled: None, .. }))));
        });
    }
}

#[test]
fn a_fill_that_needs_all_of_the_budget_is_not_tried_for_ever() {
    simulate(async {
        let link = link(12);
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&link.logs[0]));
        answering.fill(fill_up_to(13));
        let end = timeout(2 * PATIENCE_MIN, answering.next()).await;
        assert!(matches!(end, Ok(Ok(Answer::Filled { filled: None, .. }))));
    });
}
