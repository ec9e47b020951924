//! Questions to the servers about channels of a log, some at a time, asked again until they are answered.

use crate::broker::link::{Link, Log};
use crate::broker::servers::{FeedError, LASTS_MAX, Lasts, Stored};
use async_nats::header::NATS_ROLLUP;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use myriad_broker::{Asked, Fill, Filled, LastOnes};
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
    Lasts(Asked, LastOnes),
    /// Nobody answered a question that nothing waits for.
    Dropped,
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
    asks: VecDeque<Asked>,
    fills: VecDeque<Fill>,
    asking: Answers,
    filling: Answers,
}

impl Answering {
    pub(super) fn new(link: Arc<Link>, log: Arc<Log>) -> Self {
        Self {
            link,
            log,
            asks: VecDeque::new(),
            fills: VecDeque::new(),
            asking: Answers::new(),
            filling: Answers::new(),
        }
    }

    pub(super) fn ask(&mut self, asked: Asked) {
        self.asks.push_back(asked);
    }

    pub(super) fn fill(&mut self, fill: Fill) {
        self.fills.push_back(fill);
    }

    /// Begins what may begin now.
    fn begin(&mut self) {
        while self.asking.len() < ASKS_MAX
            && let Some(asked) = self.asks.pop_front()
        {
            let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
            self.asking
                .push(Box::pin(async move { ask(&link, &log, asked).await }));
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
    assert!(subjects.len() <= LASTS_MAX, "asked for too much at once");
    loop {
        if let Ok(lasts) = look(link, log, &subjects, &asked).await
            && lasts.watermark >= asked.at_least
        {
            return Ok(Answer::Lasts(asked, lasts));
        }
        if Instant::now() >= deadline {
            let is_needed = !asked.may_fail;
            let seconds = patience.as_secs();
            return if is_needed {
                Err(NoAnswer(seconds))
            } else {
                Ok(Answer::Dropped)
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
) -> Result<LastOnes, FeedError> {
    let Lasts {
        watermark,
        messages,
    } = link.servers.lasts(log, subjects).await?;
    // Asked for after the answer: what has gone by now may have been missing in it.
    let extent = link.servers.extent(log).await?;
    let by_subject: std::collections::HashMap<&str, u64> = messages
        .iter()
        .map(|message| (&*message.subject, message.sequence))
        .collect();
    let channels = asked.channels.iter().zip(&subjects[1..]);
    let places = channels.filter_map(|(name, subject)| {
        let place = by_subject.get(&**subject)?;
        Some((Arc::clone(name), *place))
    });
    Ok(LastOnes {
        watermark,
        first: extent.first,
        places: places.collect(),
    })
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
    let mut messages: Vec<(u64, Stored)> = Vec::new();
    let mut is_cut = false;
    let mut next = fill.from;
    loop {
        let page = link.servers.page(log, &subject, next).await?;
        if messages.len() + page.messages.len() > log.kept_max() {
            // The stream has dropped some meanwhile. It may have dropped what was not read yet, too.
            is_cut |= !messages.is_empty();
            messages.clear();
        }
        for message in page.messages {
            if message.sequence < next {
                continue;
            }
            next = message.sequence + 1;
            if !messages.is_empty() && is_rollup(&message) {
                // It came between two pages, and took what had not been read.
                messages.clear();
                is_cut = true;
            }
            messages.push((message.sequence, message));
        }
        if !page.has_more {
            break;
        }
    }
    let extent = link.servers.extent(log).await?;
    let begins_with_rollup = messages.first().is_some_and(|(_, first)| is_rollup(first));
    Ok(Filled {
        messages,
        first: extent.first,
        is_cut,
        begins_with_rollup,
    })
}

/// Whether a message took the place of all others of its channel, as far as its headers can be read.
fn is_rollup(message: &Stored) -> bool {
    let headers = message.headers.as_ref();
    message.is_spoiled || headers.is_some_and(|headers| headers.get(NATS_ROLLUP).is_some())
}
