//! How a node hears a log: whole, or the channels that its clients want one by one. A node may choose by what it measures.
//!
//! A message that nobody wants costs a node some us. But a log that republishes its messages for those who hear by channel stores for half
//! as much again. So a node hears a log whole while its cluster says little, or while its clients want much of it (ADR 26 has the figures).
//!
//! It looks at a *window* of some seconds at a time, by the clock of the servers: how far the log went, and how many of these messages
//! were wanted. A change asks about all channels that are wanted. So several windows in a row have to speak for it.

use std::fmt;
use std::time::Duration;

/// Both ways cost a node the same at about a third (ADR 26). It changes well below that, and back well above, so that it does not go to
/// and fro.
const SHARE_PERCENT: u64 = 25;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(5);
/// Windows in a row after which a node hears by channel: a peak passes by then. And after which it hears the log whole again: longer, as it
/// loses less while it waits.
const WINDOWS_FOR_CHANNELS: u32 = 3;
const WINDOWS_FOR_WHOLE: u32 = 6;
/// A node that cannot hear single channels after so many openings in a row hears the whole log.
const FAILED_OPENINGS_MAX: u32 = 5;
/// Then it tries single channels again after so many windows in a row. And a node that was too slow for the whole log tries that again.
const WINDOWS_AFTER_FAILURE: u32 = 120;

/// What is heard of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Everything. What nobody wants is left out.
    Whole,
    /// Each channel that is wanted, as the log republishes it.
    Channels,
}

/// What a node measures, and by what it chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Messages a second, of all logs together. From here on a node may hear by channel. Below half of it, the node hears logs whole again.
    pub rate_min: u64,
    /// Wanted messages of this log, in percent. Below it a node may hear by channel. Above twice this share, it hears the log whole again.
    pub share_percent: u64,
    /// How long it measures at a time.
    pub window: Duration,
}

impl Policy {
    /// For so many messages a second.
    #[must_use]
    pub const fn new(rate_min: u64) -> Self {
        Self {
            rate_min,
            share_percent: SHARE_PERCENT,
            window: WINDOW,
        }
    }
}

/// A change of the source, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Much is published, and little of it is wanted.
    ToChannels,
    /// Messages had gone before they were heard, and little is wanted.
    ToChannelsAsTooSlow,
    /// Little is published.
    ToWhole,
    /// Much of it is wanted.
    ToWholeAsWanted,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToChannels => {
                "single channels, because much is published and little of it is wanted"
            }
            Self::ToChannelsAsTooSlow => {
                "single channels, because messages had gone before it read them"
            }
            Self::ToWhole => {
                "the whole stream, because less than half of broker-auto-rate is published"
            }
            Self::ToWholeAsWanted => "the whole stream, because much of it is wanted",
        })
    }
}

/// What a window showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Messages of the log.
    pub messages: u64,
    /// Of these, messages of channels that were wanted.
    pub wanted: u64,
    /// Some had gone before they were heard.
    pub has_hole: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl Measured {
    /// Messages of the log a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        let millis = self.elapsed.as_millis().max(1);
        let rate = u128::from(self.messages) * 1_000 / millis;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
struct Window {
    sequence: u64,
    stored_ns: i128,
    wanted: u64,
    /// Messages had gone before they were heard.
    has_hole: bool,
}

/// How a node hears one log.
#[derive(Debug)]
pub struct Choice {
    /// None: the source is fixed.
    policy: Option<Policy>,
    source: Source,
    window: Option<Window>,
    /// Windows in a row that spoke for the other source.
    windows_against: u32,
    /// Windows in a row that a change to single channels needs: more after a failure.
    windows_for_channels: u32,
    /// Windows in a row that a change to the whole log needs: more if the node was too slow for it.
    windows_for_whole: u32,
    /// Openings in a row after which single channels were not heard.
    failed_openings: u32,
    /// It hears the whole log for want of single channels.
    is_fallback: bool,
}

impl Choice {
    /// Single channels, whatever is measured.
    #[must_use]
    pub fn fixed_to_channels() -> Self {
        Self {
            policy: None,
            source: Source::Channels,
            window: None,
            windows_against: 0,
            windows_for_channels: WINDOWS_FOR_CHANNELS,
            windows_for_whole: WINDOWS_FOR_WHOLE,
            failed_openings: 0,
            is_fallback: false,
        }
    }

    /// The whole log at first.
    #[must_use]
    pub fn adaptive(policy: Policy) -> Self {
        Self {
            policy: Some(policy),
            source: Source::Whole,
            ..Self::fixed_to_channels()
        }
    }

    /// What is to be heard.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The log is opened: the window that has begun is no measure.
    pub fn handle_opened(&mut self) {
        self.window = None;
    }

    /// A message was heard that was stored then (ns since 1970). Between it and the one before it there may be others that were not heard.
    /// Returns what was measured at the end of a window.
    pub fn handle_message(
        &mut self,
        sequence: u64,
        stored_ns: i128,
        is_wanted: bool,
    ) -> Option<Measured> {
        let length = self.policy?.window;
        let length_ns = i128::try_from(length.as_nanos()).unwrap_or(i128::MAX);
        // The clock of a new leader may be far behind that of the last one.
        let window = self
            .window
            .as_mut()
            .filter(|window| window.stored_ns - stored_ns < length_ns);
        let next = Window {
            sequence,
            stored_ns,
            wanted: 0,
            has_hole: false,
        };
        let Some(window) = window else {
            self.window = Some(next);
            return None;
        };
        window.wanted += u64::from(is_wanted);
        let (wanted, has_hole) = (window.wanted, window.has_hole);
        let elapsed = u64::try_from(stored_ns - window.stored_ns).unwrap_or(0);
        let messages = sequence.saturating_sub(window.sequence);
        let elapsed = Duration::from_nanos(elapsed);
        if elapsed < length || messages == 0 {
            return None;
        }
        self.window = Some(next);
        Some(Measured {
            messages,
            wanted,
            has_hole,
            elapsed,
        })
    }

    /// Messages had gone before they were heard: the node is too slow for the whole log.
    pub fn handle_hole(&mut self) {
        if let Some(window) = &mut self.window {
            window.has_hole = true;
        }
    }

    /// Counts a window in which all logs together had so many messages a second. Returns how the source changes, if it does.
    pub fn handle_window(&mut self, measured: &Measured, total_rate: u64) -> Option<Change> {
        let policy = self.policy?;
        let share = measured.wanted.saturating_mul(100);
        let share_min = measured.messages.saturating_mul(policy.share_percent);
        let is_fast = total_rate >= policy.rate_min;
        let (change, needed) = match self.source {
            Source::Whole if share >= share_min => (None, 0),
            Source::Whole if measured.has_hole => {
                (Some(Change::ToChannelsAsTooSlow), WINDOWS_FOR_CHANNELS)
            }
            Source::Whole if is_fast => (Some(Change::ToChannels), self.windows_for_channels),
            Source::Channels if total_rate.saturating_mul(2) < policy.rate_min => {
                (Some(Change::ToWhole), self.windows_for_whole)
            }
            Source::Channels if share / 2 > share_min => {
                (Some(Change::ToWholeAsWanted), self.windows_for_whole)
            }
            Source::Whole | Source::Channels => (None, 0),
        };
        if change.is_none() {
            self.windows_against = 0;
            return None;
        }
        self.windows_against += 1;
        if self.windows_against < needed {
            return None;
        }
        self.windows_against = 0;
        self.windows_for_whole = if is_fast {
            WINDOWS_FOR_WHOLE
        } else {
            WINDOWS_AFTER_FAILURE
        };
        self.source = match self.source {
            Source::Whole => Source::Channels,
            Source::Channels => Source::Whole,
        };
        change
    }

    /// Whether it hears the whole log for want of single channels.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// The log was opened, and a fault came before anything was heard; or the servers have refused to republish it. Returns whether the
    /// source changes.
    pub fn handle_failed_opening(&mut self, is_refused: bool) -> bool {
        if self.policy.is_none() {
            return false;
        }
        match self.source {
            Source::Channels => {
                self.failed_openings += 1;
                if !is_refused && self.failed_openings < FAILED_OPENINGS_MAX {
                    return false;
                }
                self.source = Source::Whole;
                self.is_fallback = true;
                self.windows_for_channels = WINDOWS_AFTER_FAILURE;
            }
            // The whole log cannot be heard either, so it was no matter of single channels.
            Source::Whole if self.is_fallback => {
                self.source = Source::Channels;
                self.is_fallback = false;
                self.failed_openings = 0;
                self.windows_for_channels = WINDOWS_FOR_CHANNELS;
            }
            Source::Whole => return false,
        }
        self.windows_against = 0;
        true
    }

    /// The log is heard as it was chosen.
    pub fn handle_live(&mut self) {
        self.failed_openings = 0;
        self.is_fallback = false;
        if self.source == Source::Channels {
            self.windows_for_channels = WINDOWS_FOR_CHANNELS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_MIN: u64 = 1_000;

    fn window(messages: u64, wanted: u64) -> Measured {
        Measured {
            messages,
            wanted,
            has_hole: false,
            elapsed: Duration::from_secs(1),
        }
    }

    /// Windows after which the source changes.
    fn windows_until_change(choice: &mut Choice, measured: &Measured) -> Option<u32> {
        let rate = measured.rate();
        (1..=200).find(|_| choice.handle_window(measured, rate).is_some())
    }

    #[test]
    fn a_small_share_of_a_high_rate_is_heard_by_channel() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        assert_eq!(choice.source(), Source::Whole);
        for stays in [window(999, 0), window(1_000, 250), window(1_000, 1_000)] {
            assert_eq!(windows_until_change(&mut choice, &stays), None, "{stays:?}");
        }
        let changes = window(1_000, 249);
        assert_eq!(windows_until_change(&mut choice, &changes), Some(3));
        assert_eq!(choice.source(), Source::Channels);
        for stays in [window(500, 0), window(1_000, 500)] {
            assert_eq!(windows_until_change(&mut choice, &stays), None, "{stays:?}");
        }
        assert_eq!(windows_until_change(&mut choice, &window(499, 0)), Some(6));
        assert_eq!(choice.source(), Source::Whole);
        assert_eq!(windows_until_change(&mut choice, &changes), Some(3));
        let much = window(1_000, 501);
        assert_eq!(windows_until_change(&mut choice, &much), Some(6));
    }

    #[test]
    fn windows_have_to_agree() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        let (channels, whole) = (window(2_000, 1), window(10, 1));
        for measured in [&channels, &channels, &whole, &channels, &channels] {
            assert_eq!(choice.handle_window(measured, measured.rate()), None);
        }
        // A node that is too slow may have to open its log again and again.
        choice.handle_opened();
        let changed = choice.handle_window(&channels, 2_000);
        assert_eq!(changed, Some(Change::ToChannels));
    }

    #[test]
    fn other_logs_count_for_the_rate() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        let little = window(100, 1);
        assert!((0..9).all(|_| choice.handle_window(&little, 999).is_none()));
        assert!((0..3).any(|_| choice.handle_window(&little, 1_000).is_some()));
    }

    #[test]
    fn a_window_is_measured_by_the_clock_of_the_servers() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        let second = 1_000_000_000;
        assert_eq!(choice.handle_message(10, 100 * second, true), None);
        assert_eq!(choice.handle_message(12, 97 * second, true), None, "late");
        assert_eq!(
            choice.handle_message(9, 106 * second, true),
            None,
            "an old place"
        );
        let measured = choice.handle_message(30, 105 * second, false);
        let measured = measured.expect("five seconds are a window");
        assert_eq!((measured.messages, measured.wanted), (20, 2));
        assert_eq!(measured.rate(), 4);
        // The next one begins there.
        let measured = choice.handle_message(40, 115 * second, true);
        let measured = measured.expect("ten seconds are more than one");
        assert_eq!((measured.messages, measured.wanted), (10, 1));
        // Where a clock goes far back it begins anew.
        for (sequence, seconds) in [(41, 100), (51, 104)] {
            let measured = choice.handle_message(sequence, seconds * second, true);
            assert_eq!(measured, None);
        }
        let measured = choice.handle_message(61, 105 * second, true);
        assert_eq!(measured.expect("a window").messages, 20);
    }

    #[test]
    fn what_is_said_once_and_for_all_is_not_measured() {
        let mut choice = Choice::fixed_to_channels();
        assert_eq!(choice.handle_message(1, 0, true), None);
        assert_eq!(choice.handle_message(9, i128::from(u64::MAX), true), None);
        assert_eq!(choice.handle_window(&window(10, 10), 10), None);
        assert!(!choice.handle_failed_opening(true));
        assert_eq!(choice.source(), Source::Channels);
    }

    #[test]
    fn what_cannot_be_heard_by_channel_is_tried_again_much_later() {
        for (is_refused, openings) in [(true, 1), (false, 5)] {
            let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
            let channels = window(2_000, 1);
            assert!(!choice.handle_failed_opening(true), "it is heard whole");
            assert_eq!(windows_until_change(&mut choice, &channels), Some(3));
            let failed = (1..9).find(|_| choice.handle_failed_opening(is_refused));
            assert_eq!(failed, Some(openings));
            assert_eq!(choice.source(), Source::Whole);
            choice.handle_live();
            assert!(!choice.handle_failed_opening(false), "a fault as any other");
            let slow = Measured {
                has_hole: true,
                ..channels
            };
            assert_eq!(windows_until_change(&mut choice, &slow), Some(3));
            assert!(choice.handle_failed_opening(true));
            choice.handle_live();
            assert_eq!(windows_until_change(&mut choice, &channels), Some(120));
            choice.handle_live();
            assert_eq!(windows_until_change(&mut choice, &window(1, 1)), Some(6));
            assert_eq!(windows_until_change(&mut choice, &channels), Some(3));
        }
    }

    #[test]
    fn a_log_that_is_away_is_no_matter_of_single_channels() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        let channels = window(2_000, 1);
        assert_eq!(windows_until_change(&mut choice, &channels), Some(3));
        for _ in 0..3 {
            let failed = (1..9).find(|_| choice.handle_failed_opening(false));
            assert_eq!((failed, choice.source()), (Some(5), Source::Whole));
            assert!(choice.handle_failed_opening(false));
            assert_eq!(choice.source(), Source::Channels);
        }
        choice.handle_live();
        assert_eq!(windows_until_change(&mut choice, &window(1, 1)), Some(6));
        assert_eq!(windows_until_change(&mut choice, &channels), Some(3));
    }

    #[test]
    fn a_node_that_is_too_slow_hears_by_channel_at_any_rate() {
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        let second = 1_000_000_000;
        choice.handle_message(1, 0, false);
        choice.handle_hole();
        let measured = choice.handle_message(101, 5 * second, false);
        let measured = measured.expect("a window");
        assert_eq!((measured.has_hole, measured.rate()), (true, 20));
        let changes = (1..=3).filter_map(|_| choice.handle_window(&measured, 20));
        assert_eq!(changes.collect::<Vec<_>>(), [Change::ToChannelsAsTooSlow]);
        let little = window(1, 0);
        assert_eq!(windows_until_change(&mut choice, &little), Some(120));
        let much = Measured {
            wanted: 50,
            ..measured
        };
        let mut choice = Choice::adaptive(Policy::new(RATE_MIN));
        assert_eq!(
            windows_until_change(&mut choice, &much),
            None,
            "it wants half"
        );
    }
}
