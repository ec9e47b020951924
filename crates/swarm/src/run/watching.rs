//! What a run sees of its crowd while it goes on: samples, publications that are over, progress.

use super::Run;
use super::figures::{Figures, Times, closes};
use crate::clock::{Clock as _, Nanos};
use crate::engine::flows::figures::FlowFigures;
use crate::engine::flows::ledger::FlowLedger;
use crate::measure::cpu::CpuReading;
use crate::measure::figures::{add, microseconds};
use crate::measure::process::{anonymous_bytes, processor_time};
use crate::measure::rates::Rates;
use crate::measure::series::{Look, Timed};
use crate::measure::threshold::Threshold;
use crate::report::live::round_trip_progress;
use crate::report::{float, metrics, text};
use hdrhistogram::Histogram;
use myriad_report::{Line, Progress, PushReport, Sample};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a server may accept connections and upgrade none before that is said.
const SILENCE: Duration = Duration::from_secs(3);

impl Run<'_> {
    /// Takes samples, collects finished publications, shows progress.
    pub(super) fn observe(&mut self, figures: &Figures) {
        let now = self.clock.now();
        let totals = &figures.totals;
        self.recorder.note_connected(totals.open);
        self.setup_peak.sample(now, totals.opened);
        self.message_peak.sample(now, totals.messages);
        self.answer_peak.sample(now, figures.answered.received);
        if let Some(requester) = &self.requester {
            let counts = requester.progress().trips.counts;
            self.request_peak.sample(now, counts.received);
        }
        if totals.opened > 0 {
            let rates = self
                .message_rates
                .get_or_insert_with(|| Rates::start(now, 0));
            rates.sample(now, totals.messages);
            let polls = self.poll_rates.get_or_insert_with(|| Rates::start(now, 0));
            polls.sample(now, totals.http.answers);
        }
        self.poll_peak.sample(now, totals.http.answers);
        if now >= self.next_watch {
            let accounts = self.shared.accounts();
            let thread_times: Vec<Duration> = accounts.map(|account| account.cpu_time).collect();
            match &self.link {
                None => self.watch.sample(now, thread_times),
                Some(link) => self.watch.take(&link.machine()),
            }
            self.record(now, figures);
            self.next_watch = now.plus(Duration::from_secs(1));
        }
        for push in self.collect(now, false) {
            self.live.show(&Line::Push(Box::new(push)));
        }
        self.note_silence(figures, now);
        if self.live.wants_progress(now.since(Nanos(0))) {
            self.show_progress(figures);
        }
    }

    /// Judges the thresholds that end a run, once a second from when they may.
    pub(super) fn is_broken(&mut self, figures: &Figures) -> bool {
        let now = self.clock.now();
        let Some(connected_at) = self.connected_at.filter(|_| now >= self.next_verdict) else {
            return false;
        };
        self.next_verdict = now.plus(Duration::from_secs(1));
        let all = self.config.abort_on_fail;
        let may_abort = |it: &&Threshold| {
            let delay = it.aborts_after(all);
            delay.is_some_and(|delay| now.since(connected_at) >= delay)
        };
        let mut thresholds = self.config.thresholds.iter().filter(may_abort).peekable();
        if thresholds.peek().is_none() {
            return false;
        }
        let times = Times::sum(&self.shared);
        let report = self.measured(figures, &times);
        self.broken = thresholds.find_map(|it| {
            it.broken(|metric, flows| self.figure((metric, flows), &report, &times))
        });
        if let Some(verdict) = &self.broken {
            let message = format!("{} failed: the run ends", verdict.expression);
            self.live.show(&Line::Notice { message });
        }
        self.broken.is_some()
    }

    /// Says once that connections are accepted and none is upgraded: until they time out nothing else would show it.
    fn note_silence(&mut self, figures: &Figures, now: Nanos) {
        let totals = &figures.totals;
        let answered = figures
            .failures
            .keys()
            .any(|failure| failure.is_session_answer());
        let waited = totals.first_attempt.map(|first| now.since(first));
        let is_silent = totals.opened == 0 && totals.tcp_connected > 0 && !answered;
        if self.silence_noted || !is_silent || waited.is_none_or(|waited| waited < SILENCE) {
            return;
        }
        self.silence_noted = true;
        let connected = text::count(totals.tcp_connected.min(self.config.connections));
        let message = match self.plan.session {
            Some(_) => format!(
                "{connected} connected, none has its session yet: is this a Centrifuge endpoint?"
            ),
            None if self.plan.http.is_some() => {
                format!("{connected} connected, none is answered yet: is this an HTTP server?")
            }
            None if self.plan.framing.is_some() => format!(
                "{connected} connected, none has its answer to [opening] yet: are these messages, and [framing], those of the server?"
            ),
            None => {
                format!("{connected} connected, none upgraded yet: is this a WebSocket server?")
            }
        };
        self.live.show(&Line::Notice { message });
    }

    /// Measures the publications that are over, or all of them when the run is.
    pub(super) fn collect(&mut self, now: Nanos, run_over: bool) -> Vec<PushReport> {
        let publishing = self.publisher.is_some();
        self.watch
            .look(now, publishing, self.shared.ledger.is_measuring());
        let known = self.known_until(now);
        let finished =
            self.collector
                .collect(&self.shared, &self.plan, &self.watch, known, run_over);
        for (made, times) in self.collector.measured.drain(..) {
            self.recorder.add_push(made, times);
        }
        finished
    }

    /// Takes a sample for the report's pictures.
    pub(super) fn record(&mut self, now: Nanos, figures: &Figures) {
        let requests = self.requester.as_ref().map(|it| it.progress().trips);
        let requests = requests.unwrap_or_default();
        let flows = self.shared.flows.as_ref().map(FlowLedger::sum);
        let flows = flows.unwrap_or_default();
        let (flows_sent, flows_answered) = self.flow_trips(&flows);
        let totals = &figures.totals;
        let errors = self.errors(figures);
        let server = self.server.sample(now);
        if let Some(connections) = server.as_ref().and_then(|server| server.connections) {
            let unwell = &totals.unwell;
            self.server_count
                .take(connections, unwell, totals.open, now);
        }
        let look = Look {
            connected: totals.open,
            connected_least: totals.open,
            connecting: totals.connecting,
            opened: totals.opened,
            messages: totals.messages,
            sent: figures.answered.sent + requests.counts.sent + flows_sent,
            answered: figures.answered.received + requests.counts.received + flows_answered,
            errors: errors.values().sum(),
            lost: totals.lost,
            cpu_share: self.watch.share,
            machine_cpu_share: self.watch.machine_share,
            rss_anon_bytes: self.memory(),
            server,
        };
        let times = Times::sum(&self.shared);
        let replies = match self.config.echo {
            Some(_) => Timed::Echo,
            None => Timed::ClientPublish,
        };
        let flow_times = since_due(&flows);
        let timed = [
            (Timed::Flow, &flow_times),
            (Timed::Delivery, &times.deliveries.times),
            (replies, &times.answered.times),
            (Timed::Request, &requests.times),
            (Timed::Ping, &times.pong),
        ];
        let sample = self.recorder.sample(now, look, &timed);
        self.outputs.note(&sample);
        self.live.sample(&sample);
        self.tell_metrics(&sample, look, figures, &flows);
        self.outputs.log(&self.recorder.take_intervals());
    }

    /// What both ends have used of the processors so far; none where the crowd is on other machines.
    pub(super) fn cpu_reading(&self, figures: &Figures) -> Option<CpuReading> {
        let totals = &figures.totals;
        let answers = match self.config.protocol.has_requests() {
            true => totals.http.answers,
            false => 0,
        };
        self.link.is_none().then(|| CpuReading {
            at: self.clock.now(),
            messages: totals.messages + answers,
            generator: processor_time(),
            server_s: self.server.process_cpu_s(),
        })
    }

    /// Tells the figures to those who ask at `--metrics-listen`.
    fn tell_metrics(&self, sample: &Sample, look: Look, figures: &Figures, flows: &[FlowFigures]) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let unwell = figures.totals.unwell;
        let totals = metrics::Totals {
            opened: look.opened,
            messages: look.messages,
            sent: look.sent,
            answered: look.answered,
            lost: look.lost,
            missed: self.collector.own.missed,
            stalled: unwell.stalled,
            stall_ended: unwell.ended,
            vanished: unwell.vanished,
            vanished_ended: unwell.noticed,
        };
        metrics.set(
            sample,
            totals,
            self.config.connections,
            &self.errors(figures),
        );
        let plans = self.plan.flows.iter().flat_map(|plan| &plan.flows);
        for (plan, figures) in plans.zip(flows) {
            metrics.set_flow(&plan.name, figures);
        }
    }

    /// Messages and requests of flows that were sent, and their answers.
    fn flow_trips(&self, flows: &[FlowFigures]) -> (u64, u64) {
        let plans = self.plan.flows.iter().flat_map(|plan| &plan.flows);
        let trips = plans.zip(flows);
        trips.fold((0, 0), |(sent, answered), (plan, figures)| {
            (sent + figures.sent, answered + plan.answers(figures))
        })
    }

    pub(super) fn show_progress(&mut self, figures: &Figures) {
        let memory = self.memory();
        let request = self.requester.as_ref().map(|requester| {
            round_trip_progress(&requester.progress().trips.counts, &self.request_peak)
        });
        let progress = Progress {
            request,
            elapsed_s: self.elapsed_s(),
            connected: figures.totals.open,
            connecting: figures.totals.connecting,
            connections_wanted: self.config.connections,
            setup_rate_per_s: self.setup_peak.latest(),
            churned: figures.totals.churned,
            reconnected: figures.totals.reconnected,
            lost: figures.totals.lost,
            missed: self.collector.own.missed,
            errors: self.errors(figures),
            closes: closes(figures),
            messages: figures.totals.messages,
            message_rate_per_s: self.message_peak.latest(),
            echo: self
                .config
                .echo
                .map(|_| round_trip_progress(&figures.answered, &self.answer_peak)),
            client_publish: self
                .config
                .client_publish
                .map(|_| round_trip_progress(&figures.answered, &self.answer_peak)),
            cpu_share: self.watch.share,
            rss_anon_bytes: memory,
            user_bytes_per_client: self.bytes_per_terminal(memory, figures.totals.open),
        };
        self.live.show(&Line::Progress(Box::new(progress)));
    }

    fn bytes_per_terminal(&self, memory: u64, open: u64) -> Option<f64> {
        let before = match &self.link {
            Some(link) => link.machine().memory_before,
            None => self.memory_before,
        };
        (open > 0).then(|| float(memory.saturating_sub(before)) / float(open))
    }

    /// Anonymous memory of the crowd: of this process, or of all agents.
    fn memory(&self) -> u64 {
        match &self.link {
            Some(link) => link.machine().rss_anon_bytes,
            None => anonymous_bytes(),
        }
    }

    pub(super) fn measure_memory(&mut self) {
        let memory = self.memory();
        let open = self.shared.open_terminals(|_| true);
        self.memory_connected = Some((memory, self.bytes_per_terminal(memory, open)));
    }

    /// Failures by kind, the publisher's among them.
    pub(crate) fn errors(&self, figures: &Figures) -> BTreeMap<String, u64> {
        let mut errors: BTreeMap<String, u64> = figures
            .failures
            .iter()
            .map(|(failure, &count)| (failure.to_string(), count))
            .collect();
        if let Some(publisher) = &self.publisher {
            for (failure, count) in publisher.progress().failures {
                *errors.entry(failure.to_string()).or_default() += count;
            }
        }
        for requests in self.open_loops() {
            for (failure, count) in requests.progress().failures {
                *errors.entry(failure.to_string()).or_default() += count;
            }
        }
        errors
    }
}

/// Times of deliveries of all flows, from when their messages were due.
pub(super) fn since_due(flows: &[FlowFigures]) -> Histogram<u64> {
    let mut times = microseconds();
    for flow in flows {
        add(&mut times, &flow.since_due);
    }
    times
}
