//! Questions to the servers about channels of a log, some at a time, asked again until they are answered.

use crate::broker::link::{Link, Log};
use crate::broker::servers::{FeedError, LastBySubject, SUBJECTS_ASKED_MAX, Stored, Way, Which};
use async_nats::header::NATS_ROLLUP;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use myriad_broker::{Asked, Extent, Fill, Filled, LastByChannel};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Questions for last messages at once. A server answers one of a thousand channels in 10 ms.
const ASKS_MAX: usize = 2;
/// Channels that are filled at once: each may have as much as a history.
const FILLS_MAX: usize = 16;
/// Between two attempts: the server that answered was behind, or none answered.
const PAUSE: Duration = Duration::from_millis(100);
/// How long questions that nothing waits for, and fills, are tried again. Then the question is dropped, and the channel is asked about anew.
const PATIENCE_MIN: Duration = Duration::from_secs(4);
/// How long all other questions are tried again. Then the log is opened anew.
const PATIENCE_MAX: Duration = Duration::from_secs(20);

/// What became of a question.
#[derive(Debug)]
pub(super) enum Answer {
    /// The last messages.
    Last(Asked, LastByChannel),
    /// Nobody could answer a question that nothing waits for.
    Dropped(Asked),
    /// What was missing; none if it is not to be had.
    Filled(Fill, Option<Filled<Stored>>),
}

/// Nobody has answered for so many seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoAnswer(pub(super) u64);

type Answers = FuturesUnordered<BoxFuture<'static, Result<Answer, NoAnswer>>>;

/// The questions of one log.
pub(super) struct Answering {
    link: Arc<Link>,
    log: Arc<Log>,
    /// Channels wait for the answers to these.
    asks: VecDeque<Asked>,
    /// Nothing waits for these. They have a place of their own, because strangers can cause them.
    looks: VecDeque<Asked>,
    fills: VecDeque<Fill>,
    asking: Answers,
    looking: Answers,
    filling: Answers,
}

impl Answering {
    pub(super) fn new(link: Arc<Link>, log: Arc<Log>) -> Self {
        Self {
            link,
            log,
            asks: VecDeque::new(),
            looks: VecDeque::new(),
            fills: VecDeque::new(),
            asking: Answers::new(),
            looking: Answers::new(),
            filling: Answers::new(),
        }
    }

    pub(super) fn ask(&mut self, asked: Asked) {
        let queue = if asked.may_fail {
            &mut self.looks
        } else {
            &mut self.asks
        };
        queue.push_back(asked);
    }

    pub(super) fn fill(&mut self, fill: Fill) {
        self.fills.push_back(fill);
    }

    /// Begins what may begin now.
    fn begin(&mut self) {
        for (queue, answers) in [
            (&mut self.asks, &self.asking),
            (&mut self.looks, &self.looking),
        ] {
            while answers.len() < ASKS_MAX
                && let Some(asked) = queue.pop_front()
            {
                let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
                answers.push(Box::pin(async move { ask(&link, &log, asked).await }));
            }
        }
        while self.filling.len() < FILLS_MAX
            && let Some(one) = self.fills.pop_front()
        {
            let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
            self.filling
                .push(Box::pin(async move { fill(&link, &log, one).await }));
        }
    }

    /// The next answer. May be given up while it waits. Without a question it waits for ever.
    ///
    /// # Errors
    /// Nobody answers.
    pub(super) async fn next(&mut self) -> Result<Answer, NoAnswer> {
        self.begin();
        tokio::select! {
            biased;
            Some(answer) = self.asking.next(), if !self.asking.is_empty() => answer,
            Some(answer) = self.filling.next(), if !self.filling.is_empty() => answer,
            Some(answer) = self.looking.next(), if !self.looking.is_empty() => answer,
            else => std::future::pending().await,
        }
    }
}

/// Asks until a server answers that has got as far as it must.
async fn ask(link: &Link, log: &Log, asked: Asked) -> Result<Answer, NoAnswer> {
    let patience = if asked.may_fail {
        PATIENCE_MIN
    } else {
        PATIENCE_MAX
    };
    let deadline = Instant::now() + patience;
    // Whatever the channels have, there is an answer: the beat is always there.
    let beat = link.subjects.beat(&log.class);
    let channels = asked.channels.iter();
    let channels = channels.map(|name| link.subjects.stored(&log.class, name));
    let subjects: Vec<String> = std::iter::once(beat).chain(channels).collect();
    assert!(
        subjects.len() <= SUBJECTS_ASKED_MAX,
        "asked for too much at once"
    );
    loop {
        if let Ok((last, extent)) = look(link, log, &subjects, &asked).await {
            if last.watermark >= asked.at_least {
                return Ok(Answer::Last(asked, last));
            }
            if asked.may_fail && extent.last < asked.at_least {
                // Nobody has stored so much: somebody has made that up.
                return Ok(Answer::Dropped(asked));
            }
        }
        if Instant::now() >= deadline {
            return if asked.may_fail {
                Ok(Answer::Dropped(asked))
            } else {
                Err(NoAnswer(patience.as_secs()))
            };
        }
        sleep(PAUSE).await;
    }
}

async fn look(
    link: &Link,
    log: &Log,
    subjects: &[String],
    asked: &Asked,
) -> Result<(LastByChannel, Extent), FeedError> {
    let LastBySubject { watermark, places } = link.servers.last_by_subject(log, subjects).await?;
    // Asked for after the answer: what has gone by now may have been missing in it.
    let extent = link.servers.extent(log).await?;
    let channels = asked.channels.iter().zip(&subjects[1..]);
    let places = channels.filter_map(|(name, subject)| {
        let place = places.get(subject)?;
        Some((Arc::clone(name), *place))
    });
    let last = LastByChannel {
        watermark,
        first: extent.first,
        places: places.collect(),
    };
    Ok((last, extent))
}

/// Reads until it has come to where it must.
async fn fill(link: &Link, log: &Log, fill: Fill) -> Result<Answer, NoAnswer> {
    let deadline = Instant::now() + PATIENCE_MIN;
    loop {
        if let Ok(filled) = read(link, log, &fill).await {
            let reached = filled.messages.last().map_or(0, |(sequence, _)| *sequence);
            if reached >= fill.to {
                return Ok(Answer::Filled(fill, Some(filled)));
            }
        }
        if Instant::now() >= deadline {
            return Ok(Answer::Filled(fill, None));
        }
        sleep(PAUSE).await;
    }
}

async fn read(link: &Link, log: &Log, fill: &Fill) -> Result<Filled<Stored>, FeedError> {
    let subject = link.subjects.stored(&log.class, &fill.channel);
    let mut reading = Pages::default();
    loop {
        let next = reading.next().unwrap_or(fill.from);
        let page = link.servers.page(log, &subject, next).await?;
        let has_more = page.has_more;
        reading.take(page.messages, next, log.kept_min());
        if !has_more {
            break;
        }
    }
    if let Some(begin) = reading.begin_of_several() {
        // What goes, goes from the oldest on. So if the first one is still there, nothing went between two pages.
        let which = Which::OfFrom(&subject, begin);
        let oldest = link.servers.look(Way::Reading, log, which).await?;
        if oldest.is_none_or(|oldest| oldest.sequence != begin) {
            reading.keep_last_page();
        }
    }
    let extent = link.servers.extent(log).await?;
    let Pages {
        messages, is_cut, ..
    } = reading;
    let begins_with_rollup = messages.first().is_some_and(|(_, first)| is_rollup(first));
    Ok(Filled {
        messages,
        first: extent.first,
        is_cut,
        begins_with_rollup,
    })
}

/// The messages of a channel as they are read.
#[derive(Default)]
struct Pages {
    messages: Vec<(u64, Stored)>,
    /// Where the last page begins in them.
    last_page: usize,
    /// Something in front of them was given up.
    is_cut: bool,
}

impl Pages {
    /// The place to read on from.
    fn next(&self) -> Option<u64> {
        self.messages.last().map(|(sequence, _)| sequence + 1)
    }

    /// Takes a page from a place on. A stream may keep far more of a channel than a history has: then the oldest go.
    fn take(&mut self, page: Vec<Stored>, from: u64, kept: usize) {
        self.last_page = self.messages.len();
        let new = page.into_iter().filter(|message| message.sequence >= from);
        self.messages
            .extend(new.map(|message| (message.sequence, message)));
        if self.messages.len() > 2 * kept {
            let surplus = self.messages.len() - kept;
            self.messages.drain(..surplus);
            self.last_page = self.last_page.saturating_sub(surplus);
            self.is_cut = true;
        }
    }

    /// The first place, if they are of more than one page.
    fn begin_of_several(&self) -> Option<u64> {
        let (begin, _) = self.messages.first()?;
        (self.last_page > 0).then_some(*begin)
    }

    fn keep_last_page(&mut self) {
        self.messages.drain(..self.last_page);
        self.last_page = 0;
        self.is_cut = true;
    }
}

/// Whether a message took the place of all others of its channel, as far as its headers can be read.
fn is_rollup(message: &Stored) -> bool {
    let headers = message.headers.as_ref();
    message.is_spoiled || headers.is_some_and(|headers| headers.get(NATS_ROLLUP).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(places: std::ops::RangeInclusive<u64>) -> Vec<Stored> {
        let stored = |sequence| Stored {
            sequence,
            stored_ns: 0,
            subject: "a".into(),
            headers: None,
            payload: bytes::Bytes::new(),
            is_spoiled: false,
        };
        places.map(stored).collect()
    }

    fn places(pages: &Pages) -> Vec<u64> {
        pages.messages.iter().map(|(place, _)| *place).collect()
    }

    #[test]
    fn pages_are_put_together_and_only_the_last_one_is_sure_to_be_whole() {
        let mut pages = Pages::default();
        assert_eq!((pages.next(), pages.begin_of_several()), (None, None));
        pages.take(page(3..=5), 3, 100);
        assert_eq!((pages.next(), pages.begin_of_several()), (Some(6), None));
        // A server that is behind gives some again.
        pages.take(page(5..=7), 6, 100);
        assert_eq!(pages.begin_of_several(), Some(3));
        assert_eq!((places(&pages), pages.is_cut), ((3..=7).collect(), false));
        pages.keep_last_page();
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7], true));
    }

    #[test]
    fn more_than_a_history_can_have_is_given_up() {
        let mut pages = Pages::default();
        pages.take(page(1..=6), 1, 4);
        assert!(!pages.is_cut);
        pages.take(page(7..=9), 7, 4);
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7, 8, 9], true));
        assert_eq!(pages.begin_of_several(), Some(6));
        pages.keep_last_page();
        assert_eq!(places(&pages), [7, 8, 9]);
    }
}
