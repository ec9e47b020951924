//! CPU time of both ends for each message, from the end of connecting.

use crate::clock::Nanos;
use crate::measure::figures::float;
use myriad_report::CpuReport;
use std::time::Duration;

/// What both ends had used, and how many messages had come, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuReading {
    pub at: Nanos,
    /// Messages that clients have received.
    pub messages: u64,
    /// Processor time of this process.
    pub generator: Duration,
    /// Processor seconds of the server; none where its process is not watched, or is gone.
    pub server_s: Option<f64>,
}

impl CpuReading {
    /// What was used, and came, since an earlier one.
    fn since(&self, before: &Self) -> CpuReport {
        let messages = self.messages.saturating_sub(before.messages);
        let generator_s = self
            .generator
            .saturating_sub(before.generator)
            .as_secs_f64();
        let server_s = self.server_s.zip(before.server_s);
        // A sum that has fallen lacks a process that was in it: what the server used cannot be told.
        let server_s = server_s
            .filter(|(now, before)| now >= before)
            .map(|(now, before)| now - before);
        let us_per_message = |cpu_s: f64| (messages > 0).then(|| cpu_s * 1e6 / float(messages));
        CpuReport {
            span_s: self.at.since(before.at).as_secs_f64(),
            messages,
            generator_cpu_s: generator_s,
            server_cpu_s: server_s,
            generator_cpu_us_per_message: us_per_message(generator_s),
            server_cpu_us_per_message: server_s.and_then(us_per_message),
        }
    }
}

/// Looks at both ends when connecting has ended, and when measuring ends. Connecting has its own cost, which is no message's.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    connected: Option<CpuReading>,
    report: Option<CpuReport>,
}

impl CpuMeter {
    /// Begins when connecting has ended. Without a reading nothing is reported.
    pub(crate) fn begin(&mut self, reading: Option<CpuReading>) {
        self.connected = reading;
    }

    /// Ends with the measuring.
    pub(crate) fn end(&mut self, reading: Option<CpuReading>) {
        let both = reading.zip(self.connected);
        self.report = both.map(|(now, before)| now.since(&before));
    }

    /// What was used in between; none before the end, and in a run whose connecting did not end.
    pub(crate) fn report(&self) -> Option<CpuReport> {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(
        seconds: u64,
        messages: u64,
        generator_ms: u64,
        server_s: Option<f64>,
    ) -> CpuReading {
        CpuReading {
            at: Nanos(seconds * 1_000_000_000),
            messages,
            generator: Duration::from_millis(generator_ms),
            server_s,
        }
    }

    #[test]
    fn connecting_is_no_part_of_what_a_message_costs() {
        let mut meter = CpuMeter::default();
        assert_eq!(meter.report(), None);
        meter.begin(Some(reading(5, 100, 4_000, Some(7.0))));
        meter.end(Some(reading(15, 1_000_100, 6_000, Some(12.0))));
        let cpu = meter.report().unwrap();
        assert_eq!((cpu.span_s, cpu.messages), (10.0, 1_000_000));
        assert_eq!((cpu.generator_cpu_s, cpu.server_cpu_s), (2.0, Some(5.0)));
        assert_eq!(cpu.generator_cpu_us_per_message, Some(2.0));
        assert_eq!(cpu.server_cpu_us_per_message, Some(5.0));
    }

    #[test]
    fn what_is_not_watched_or_did_not_come_has_no_figure() {
        let mut meter = CpuMeter::default();
        meter.begin(Some(reading(5, 100, 4_000, Some(7.0))));
        // The server is gone.
        meter.end(Some(reading(15, 200, 6_000, None)));
        let cpu = meter.report().unwrap();
        assert_eq!(
            (cpu.server_cpu_s, cpu.server_cpu_us_per_message),
            (None, None)
        );
        assert_eq!(cpu.generator_cpu_us_per_message, Some(20_000.0));
        meter.end(Some(reading(15, 100, 6_000, Some(8.0))));
        let cpu = meter.report().unwrap();
        assert_eq!(cpu.generator_cpu_us_per_message, None, "nothing came");
        assert_eq!(
            (cpu.server_cpu_s, cpu.server_cpu_us_per_message),
            (Some(1.0), None)
        );
        // A process of the server has ended, and its time with it.
        meter.end(Some(reading(15, 200, 6_000, Some(6.5))));
        let cpu = meter.report().unwrap();
        assert_eq!(
            (cpu.server_cpu_s, cpu.server_cpu_us_per_message),
            (None, None)
        );
        let mut unconnected = CpuMeter::default();
        unconnected.end(Some(reading(15, 100, 6_000, None)));
        assert_eq!(unconnected.report(), None);
    }
}
