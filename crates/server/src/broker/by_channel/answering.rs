//! Questions to the servers about channels of a log, some at a time, asked again until they are answered.

use super::pages::Pages;
use crate::broker::fill_budget::FillShare;
use crate::broker::link::{Link, Log};
use crate::broker::servers::{FeedError, LastBySubject, SUBJECTS_ASKED_MAX, Stored};
use crate::broker::store::ROLLUP;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use myriad_broker::{Asked, Extent, Fill, Filled, LastByChannel};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Questions for last messages at once. A server answers one of a thousand channels in 10 ms.
const ASKS_MAX: usize = 2;
/// Between two attempts: the server that answered was behind, or none answered.
const PAUSE: Duration = Duration::from_millis(100);
/// How long questions that nothing waits for, and fills, are tried again. Then the question is dropped, and the channel is asked about
/// anew.
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
    /// What a channel lacks was read, or cannot be read.
    Filled {
        /// What it lacks.
        fill: Fill,
        /// The messages; none if they are not to be had.
        filled: Option<Filled<Stored>>,
        /// Their share of the budget. To be dropped when homes have been told.
        share: FillShare,
    },
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
        while self.filling.len() < self.link.fill_limits.fills_max
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

/// Reads until it has come to where it must. It has no share while it pauses: fills of other logs may need it.
async fn fill(link: &Link, log: &Log, fill: Fill) -> Result<Answer, NoAnswer> {
    let mut deadline = Instant::now() + PATIENCE_MIN;
    let mut share = link.fill_budget.empty_share();
    let (filled, share) = loop {
        match read(link, log, &fill, share).await {
            Ok(Read::Filled(filled, share)) => break (Some(filled), share),
            Ok(Read::OverBudget) => {
                // It has given back what it had: if it kept that, nobody might ever have enough.
                let begun = Instant::now();
                share = link.fill_budget.whole().await;
                // Others made it wait, not the servers. A new deadline would let it try for ever.
                deadline += begun.elapsed();
            }
            Ok(Read::Behind) | Err(_) => {
                share = link.fill_budget.empty_share();
                if Instant::now() >= deadline {
                    break (None, share);
                }
                sleep(PAUSE).await;
            }
        }
    };
    Ok(Answer::Filled {
        fill,
        filled,
        share,
    })
}

/// What came of an attempt.
enum Read {
    /// The messages, and their share of the budget.
    Filled(Filled<Stored>, FillShare),
    /// The channel has more than is free of the budget.
    OverBudget,
    /// The server that answered has not come to where it must.
    Behind,
}

/// Reads once. The share is given back unless the messages are in it.
async fn read(
    link: &Link,
    log: &Log,
    fill: &Fill,
    mut share: FillShare,
) -> Result<Read, FeedError> {
    let budget = &link.fill_budget;
    let subject = link.subjects.stored(&log.class, &fill.channel);
    let mut reading = Pages::default();
    let mut from = fill.from;
    loop {
        let size = link.fill_limits.page.and_bytes(reading.bytes_of_last());
        let page = link.servers.page(log, &subject, from, size).await?;
        let has_new = reading.take(page.messages, log.kept_min());
        // A page that is all there is waits for its share at the end.
        let is_one_of_several = page.has_more || !share.is_empty();
        if share.is_whole() {
            // No channel may have more: what is older counts as missing.
            reading.cut_to(budget.bytes_max());
        } else if is_one_of_several && !share.grow_to(reading.bytes()) {
            return Ok(Read::OverBudget);
        }
        if !page.has_more {
            break;
        }
        from = match reading.last() {
            // Once more: if it begins the next page, nothing has gone in between.
            Some(last) if has_new => last,
            // The page has no room for another one.
            Some(last) if from == last => last + 1,
            _ => return Ok(Read::Behind),
        };
    }
    if reading.last().is_none_or(|last| last < fill.to) {
        return Ok(Read::Behind);
    }
    let extent = link.servers.extent(log).await?;
    if share.is_empty() {
        // It has no share, and asks no server any more. So this wait keeps nobody from the budget.
        reading.cut_to(budget.bytes_max());
        share = budget.share_of(reading.bytes()).await;
    }
    let (messages, is_cut) = reading.end();
    let begins_with_rollup = messages.first().is_some_and(|(_, first)| is_rollup(first));
    let filled = Filled {
        messages,
        first: extent.first,
        is_cut,
        begins_with_rollup,
    };
    Ok(Read::Filled(filled, share))
}

/// Whether a message took the place of all others of its channel, as far as its headers can be read.
fn is_rollup(message: &Stored) -> bool {
    message.is_spoiled || message.header(ROLLUP).is_some()
}

#[cfg(test)]
mod tests;
