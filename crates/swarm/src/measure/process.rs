//! What the crowd itself uses: processor time and memory, as the kernel counts them; and whether that spoils its figures.

use crate::clock::Nanos;
use crate::fleet::MachineState;
use crate::measure::figures::float;
use myriad_usage::{Footprint, Ticks};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::time::Duration;

/// Share of its processors above which the crowd's own slowness is in its figures.
pub(crate) const SATURATED_SHARE: f64 = 0.9;

/// Share of the machine's processors above which nobody on it runs when it wants to.
pub(crate) const MACHINE_SATURATED_SHARE: f64 = 0.95;

/// Looks at the machine that are remembered while a publication is measured: a minute of them.
const LOOKS_MAX: usize = 1200;

/// Shortest time between two looks that says how busy the machine was: its ticks are 10 ms.
const LOOKED_MIN: Duration = Duration::from_millis(100);

/// Two ticks of the machine's clock.
const TICKS_TWO: Duration = Duration::from_millis(20);

/// Lateness of a schedule above which the load was not what was asked for.
pub const LATE_MAX: Duration = Duration::from_millis(100);

/// Processor time of this process so far, user and system together.
pub(crate) fn processor_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

/// The same of the calling thread alone.
pub(crate) fn thread_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).expect("processor time is not negative"),
        u32::try_from(time.tv_nsec).expect("nanoseconds are below a second"),
    )
}

/// Bytes of anonymous memory this process has resident (`RssAnon`): heap and stacks, without mapped files
/// and without what the kernel keeps for its sockets and rings. Zero where /proc does not say.
pub(crate) fn anonymous_bytes() -> u64 {
    Footprint::of(std::process::id()).map_or(0, |footprint| footprint.anonymous_bytes)
}

/// Watches processor time, once a second.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Processors this process's threads can keep busy.
    processors: f64,
    previous: (Nanos, Duration),
    previous_threads: Vec<Duration>,
    previous_machine: Option<Ticks>,
    /// Of those processors, or of one by a single thread, whichever is more: a crowd whose connections fell to
    /// one thread is saturated when that one is.
    pub share: f64,
    pub share_max: f64,
    /// Seconds watched, and those of them in which the crowd was saturated.
    pub seconds: u64,
    pub saturated_seconds: u64,
    /// Share of the machine's processors that was busy with anything, at most.
    pub machine_share_max: f64,
    /// Seconds in which more than [`MACHINE_SATURATED_SHARE`] of the machine's processors was busy with anything.
    pub machine_saturated_seconds: u64,
    /// The share of the machine's processors that was busy in the last second.
    pub machine_share: f64,
    /// Ticks of the machine and idle ones, by when they were read; while a publication is measured.
    looks: VecDeque<(Nanos, u64, u64)>,
}

impl Watch {
    /// Watches from now on; `threads` are the crowd's.
    pub(crate) fn start(now: Nanos, threads: usize) -> Self {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(threads.min(available)).map_or(1.0, f64::from);
        let machine = Ticks::now();
        Self {
            processors,
            previous: (now, processor_time()),
            previous_threads: vec![Duration::ZERO; threads],
            previous_machine: machine,
            share: 0.0,
            share_max: 0.0,
            seconds: 0,
            saturated_seconds: 0,
            machine_share_max: 0.0,
            machine_saturated_seconds: 0,
            machine_share: 0.0,
            looks: VecDeque::new(),
        }
    }

    /// Takes what agents of a fleet have seen, in place of this process.
    pub(crate) fn take(&mut self, seen: &MachineState) {
        self.share = seen.share;
        self.share_max = seen.share_max;
        self.seconds = seen.watched_s;
        self.saturated_seconds = seen.saturated_s;
        self.machine_share = seen.machine_share;
        self.machine_share_max = seen.machine_share_max;
        self.machine_saturated_seconds = seen.machine_saturated_s;
    }

    /// Takes a sample; `thread_times` are the processor times of the crowd's threads.
    pub(crate) fn sample(&mut self, now: Nanos, thread_times: Vec<Duration>) {
        let used = processor_time();
        let (since, before) = std::mem::replace(&mut self.previous, (now, used));
        let elapsed = now.since(since).as_secs_f64();
        if elapsed > 0.0 {
            let whole = used.saturating_sub(before).as_secs_f64() / elapsed / self.processors;
            let of_thread = |(now, before): (&Duration, &Duration)| {
                now.saturating_sub(*before).as_secs_f64() / elapsed
            };
            let threads = thread_times.iter().zip(&self.previous_threads);
            let busiest = threads.map(of_thread).fold(0.0, f64::max);
            // A thread notes its time now and then, so that its last second may be a little long.
            self.share = whole.max(busiest.min(1.0));
            self.share_max = self.share_max.max(self.share);
            self.seconds += 1;
            self.saturated_seconds += u64::from(self.share > SATURATED_SHARE);
        }
        self.previous_threads = thread_times;
        self.sample_machine(Ticks::now());
    }

    /// Looks at the machine while publications are made and measured, many times a second; keeps only the newest look
    /// while none is measured.
    pub(crate) fn look(&mut self, now: Nanos, publishing: bool, measuring: bool) {
        if !measuring {
            self.looks.clear();
        }
        if (publishing || measuring)
            && let Some(Ticks { all, idle }) = Ticks::now()
        {
            self.note_look(now, all, idle);
        }
    }

    pub(super) fn note_look(&mut self, now: Nanos, all: u64, idle: u64) {
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        self.looks.push_back((now, all, idle));
    }

    /// How busy the machine was between two times, whoever used it; none where too little of that was seen.
    pub(super) fn machine_share(&self, from: Nanos, to: Nanos) -> Option<f64> {
        self.share_within(from, to)
            .or_else(|| self.share_around(from, to))
    }

    /// By the looks between the two times.
    fn share_within(&self, from: Nanos, to: Nanos) -> Option<f64> {
        let mut within = self
            .looks
            .iter()
            .filter(|&&(at, ..)| from <= at && at <= to);
        let (first_at, all_before, idle_before) = *within.next()?;
        let (last_at, all, idle) = *within.next_back()?;
        let seen = last_at.since(first_at);
        if seen < LOOKED_MIN || seen < to.since(from) / 2 || all <= all_before {
            return None;
        }
        let idle = float(idle.saturating_sub(idle_before));
        Some(1.0 - idle / float(all - all_before))
    }

    /// By the looks before and after two times that are close together. Idle time belongs to the rest of the time between
    /// those looks as far as that has room for it: a machine that was busy for a short push alone was still busy.
    fn share_around(&self, from: Nanos, to: Nanos) -> Option<f64> {
        let (first_at, all_before, idle_before) =
            *self.looks.iter().rev().find(|&&(at, ..)| at <= from)?;
        let (last_at, all, idle) = *self.looks.iter().find(|&&(at, ..)| at >= to)?;
        let (seen, span) = (last_at.since(first_at), to.since(from));
        if all <= all_before || span > LOOKED_MIN * 2 || seen > LOOKED_MIN * 5 {
            return None;
        }
        let all = float(all - all_before);
        let idle = float(idle.saturating_sub(idle_before));
        // Below two ticks of the clock nothing can be told apart from what is around.
        let inside = if span < TICKS_TWO { seen } else { span };
        let inside = all * inside.as_secs_f64() / seen.as_secs_f64();
        let idle_inside = (idle - (all - inside)).max(0.0);
        Some((1.0 - idle_inside / inside).max(0.0))
    }

    fn sample_machine(&mut self, machine: Option<Ticks>) {
        if let (Some(now), Some(before)) = (machine, self.previous_machine)
            && now.all > before.all
        {
            #[expect(clippy::cast_precision_loss, reason = "ticks of one second")]
            let idle_share =
                now.idle.saturating_sub(before.idle) as f64 / (now.all - before.all) as f64;
            self.machine_share = 1.0 - idle_share;
            self.machine_share_max = self.machine_share_max.max(self.machine_share);
            let is_full = self.machine_share > MACHINE_SATURATED_SHARE;
            self.machine_saturated_seconds += u64::from(is_full);
        }
        self.previous_machine = machine;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_looked_at_within_a_push_alone() {
        let at = |millis: u64| Nanos(millis * 1_000_000);
        let mut watch = Watch::start(at(0), 1);
        // Two processors: idle until 100 ms, without a rest until 500 ms, idle again.
        for (millis, idle) in [(0, 0), (100, 20), (300, 20), (500, 20), (700, 60)] {
            watch.note_look(at(millis), millis / 5, idle);
        }
        assert_eq!(watch.machine_share(at(80), at(520)), Some(1.0));
        assert_eq!(watch.machine_share(at(280), at(720)), Some(0.5));
        assert_eq!(watch.machine_share(at(80), at(250)), Some(1.0), "around it");
        assert_eq!(watch.machine_share(at(600), at(900)), None, "one look");
        assert_eq!(
            watch.machine_share(at(90), at(2000)),
            None,
            "most was not seen"
        );
        watch.look(at(800), false, false);
        assert_eq!(watch.machine_share(at(80), at(520)), None);
    }

    #[test]
    fn a_short_push_without_a_rest_is_seen() {
        let at = |millis: u64| Nanos(millis * 1_000_000);
        let mut watch = Watch::start(at(0), 1);
        // Two processors, 10 ms a tick: idle but from 110 ms to 150 ms.
        for (millis, all, idle) in [(100, 20, 20), (160, 32, 24)] {
            watch.note_look(at(millis), all, idle);
        }
        assert_eq!(watch.machine_share(at(110), at(150)), Some(1.0));
        let share = watch.machine_share(at(120), at(125)).unwrap();
        assert!(
            (share - 8.0 / 12.0).abs() < 1e-9,
            "too short to tell: {share}"
        );
        let mut calm = Watch::start(at(0), 1);
        for (millis, all, idle) in [(100, 20, 20), (160, 32, 31)] {
            calm.note_look(at(millis), all, idle);
        }
        let share = calm.machine_share(at(110), at(150)).unwrap();
        assert!((share - 1.0 / 8.0).abs() < 1e-9, "{share}");
        assert_eq!(
            calm.machine_share(at(50), at(90)),
            None,
            "nothing before it"
        );
    }

    #[test]
    fn seconds_without_a_rest_of_the_machine_are_counted() {
        let mut watch = Watch::start(Nanos(0), 1);
        watch.previous_machine = Some(Ticks { all: 0, idle: 0 });
        for (all, idle) in [(200, 100), (400, 105), (600, 200)] {
            watch.sample_machine(Some(Ticks { all, idle }));
        }
        assert_eq!(watch.machine_saturated_seconds, 1);
        assert_eq!(watch.machine_share_max, 0.975);
    }

    #[test]
    fn this_process_uses_some_memory_and_time() {
        assert!(anonymous_bytes() > 0);
        let before = processor_time();
        std::hint::black_box((0..1_000_000_u64).map(std::hint::black_box).sum::<u64>());
        assert!(processor_time() > before);
    }
}
