//! Whether what the server did to a peer is what it should have done: statuses, pings, close codes, ends, and that
//! nothing is missing.

use crate::ledger::{Ledger, TINY};
use crate::peer::{Errand, Peer, Scene, Subscription};
use crate::plan::{Clock, Plan};
use myriad_reactor::sim::PeerEnd;
use std::time::Duration;

/// Deadlines are kept to this: the tick of the timing wheel.
pub(crate) const TICK_NS: u64 = 50_000_000;
/// Bytes of the longest answer to a handshake.
const HEAD_BYTES: u64 = 300;
/// Bytes of the largest close frame.
const CLOSE_BYTES: u64 = 127;

pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a timeout")
}

/// Whether a timeout of this length may have ended in this time.
fn may_have_passed(elapsed: u64, timeout: Duration) -> bool {
    elapsed + TICK_NS > ns(timeout)
}

impl Peer {
    /// Bytes that were ever meant for it, at most: nothing is taken to be compressed.
    fn addressed_bytes(&self, ledger: &Ledger) -> u64 {
        let of = |one: &Subscription| ledger.bytes_from(one.channel, one.earliest);
        let publications: u64 = self.subscriptions.iter().map(of).sum();
        let pings = 2 * (self.pings + 1);
        HEAD_BYTES + publications + self.replies_bytes.0 + pings + CLOSE_BYTES
    }

    /// The largest frame that was ever meant for it.
    fn frame_bytes_max(&self, ledger: &Ledger) -> u64 {
        let of = |one: &Subscription| ledger.frame_bytes_max_from(one.channel, one.earliest);
        let publications = self.subscriptions.iter().map(of).max().unwrap_or(0);
        publications.max(self.replies_bytes.1)
    }

    /// What the queue of all that was ever meant for it would cost beyond its bytes: 64 for each frame.
    fn overhead_bytes_max(&self, ledger: &Ledger) -> u64 {
        let of = |one: &Subscription| ledger.frames_from(one.channel, one.earliest);
        let publications: u64 = self.subscriptions.iter().map(of).sum();
        // A reply has two bytes at least.
        64 * (publications + self.replies_bytes.0 / 2 + self.pings + 3)
    }

    /// What was meant for it and has not come.
    fn unread_bytes(&self, ledger: &Ledger) -> u64 {
        self.addressed_bytes(ledger)
            .saturating_sub(self.decoder.total())
    }

    pub(crate) fn check_response(
        &self,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
        scene: &Scene,
    ) {
        let plan = &scene.plan;
        let settings = &plan.settings;
        let has = |name: &str| headers.iter().any(|(known, _)| known == name);
        let is_closing = headers
            .iter()
            .any(|(name, value)| name == "connection" && value.contains("close"));
        assert!(is_closing, "{headers:?}");
        assert!(body.len() > 20, "an answer says what to do");
        let asks_for_stream = matches!(
            self.errand,
            Errand::Stream
                | Errand::Echo
                | Errand::Refused {
                    is_found_late: true,
                    ..
                }
        );
        let is_plausible = match (status, &self.errand) {
            (408, _) => may_have_passed(scene.now - self.connected_at, settings.handshake_timeout),
            (503, _) => {
                assert!(has("retry-after"));
                self.is_unavailable(&String::from_utf8_lossy(body), asks_for_stream, scene)
            }
            (200, _) => self.is_sent_to_api(plan),
            (401, _) => asks_for_stream && !settings.anonymous,
            (404, Errand::Api) => !settings.hands_over,
            (404, Errand::Echo) => !settings.echo,
            (400, Errand::Stream) => self.is_eager,
            (_, Errand::Refused { status: due, .. }) => status == *due,
            _ => false,
        };
        assert!(is_plausible, "peer {}: status {status}", self.number);
    }

    /// Whether a 503 with that sentence can be.
    fn is_unavailable(&self, sentence: &str, asks_for_stream: bool, scene: &Scene) -> bool {
        let plan = &scene.plan;
        if sentence.contains("shutting down") {
            // Whatever it has sent of its request so far.
            scene.is_draining
        } else if sentence.contains("full") {
            // A connection that finds no slot when it comes back is told so, whatever it asks for.
            self.is_handed_back || asks_for_stream && plan.limits.connections_max < 1000
        } else if sentence.contains("no memory") {
            plan.is_tight()
        } else if sentence.contains("too busy") {
            let patience = plan.settings.handshake_timeout;
            asks_for_stream && may_have_passed(scene.now - self.connected_at, patience)
        } else {
            false
        }
    }

    /// Pings come no faster than their interval, and not while one is unanswered.
    pub(crate) fn check_ping(&mut self, scene: &Scene) {
        let interval = ns(scene.plan.settings.ping_interval);
        assert!(interval > 0, "no pings were asked for");
        let elapsed = scene.now - self.connected_at;
        assert!(
            self.pings <= elapsed / interval.next_multiple_of(TICK_NS),
            "{} pings in {elapsed} ns",
            self.pings + 1
        );
        let is_mute = self.writes_when_open == 0 && !self.is_eager && !self.has_outbox();
        assert!(!is_mute || self.pings == 0, "a second ping without a pong");
        self.pings += 1;
    }

    pub(crate) fn check_close(&self, code: Option<u16>, scene: &Scene, ledger: &Ledger) {
        let plan = &scene.plan;
        if self.close_sent == Some(code) {
            return;
        }
        let settings = &plan.settings;
        let unread = self.unread_bytes(ledger);
        let is_plausible = match code {
            Some(1001) => {
                let idle = settings.idle_timeout;
                scene.is_draining
                    || !idle.is_zero()
                        && (plan.clock == Clock::Wild
                            || may_have_passed(self.silence(scene.now), idle))
            }
            Some(1002 | 1007 | 1009) => self.fault_sent == code,
            Some(1013) => plan.is_tight(),
            Some(3004 | 3010) => plan.plants_defects,
            // What the peer had part of was still sent.
            Some(3008) => {
                let cost_max = unread + self.overhead_bytes_max(ledger);
                cost_max + self.frame_bytes_max(ledger) > u64::from(settings.outbound_bytes_max)
            }
            Some(3012) => {
                !settings.ping_interval.is_zero() && (!self.is_well_behaved(plan) || unread > 8_192)
            }
            _ => false,
        };
        assert!(
            is_plausible,
            "peer {}: close {code:?}, {unread} bytes unread",
            self.number
        );
    }

    /// Nothing that happens to it may be for its own fault.
    fn is_well_behaved(&self, plan: &Plan) -> bool {
        let (kernel_bytes, _) = plan.faults.kernel_bytes;
        plan.clock == Clock::Calm
            && self.manners.is_prompt
            && !self.manners.is_slow_writer
            && !self.has_stalled
            && self.close_sent.is_none()
            && self.fault_sent.is_none()
            && kernel_bytes >= 1024
            && plan.settings.pong_timeout >= Duration::from_millis(500)
    }

    pub(crate) fn check_end(&self, is_heard: bool, scene: &Scene, ledger: &Ledger) {
        if !is_heard {
            assert_eq!(
                self.status, None,
                "an answer before the handshake has ended"
            );
            return;
        }
        match self.end {
            Some(PeerEnd::Fin) => {
                assert!(
                    !self.decoder.is_partial() || self.has_sent_fin,
                    "ends in the middle"
                );
                let has_final_chunk = match self.status {
                    Some(101) => self.close_received.is_some(),
                    Some(_) => true,
                    None => matches!(self.errand, Errand::Api) || self.is_sent_to_api(&scene.plan),
                };
                assert!(has_final_chunk || self.has_sent_fin, "ends without a word");
            }
            Some(PeerEnd::Reset) => {
                let has_final_chunk = self.close_received.is_some()
                    || self.status.is_some_and(|status| status != 101);
                assert!(
                    has_final_chunk || self.may_be_reset(scene, ledger),
                    "peer {}: reset without a word, {} bytes unread",
                    self.number,
                    self.unread_bytes(ledger)
                );
            }
            None => unreachable!("asked at the end"),
        }
        self.check_tiny(false, ledger);
    }

    /// Its request goes to the control plane, which may fail to take it.
    pub(crate) fn is_sent_to_api(&self, plan: &Plan) -> bool {
        plan.settings.hands_over && matches!(self.errand, Errand::Api)
    }

    fn may_be_reset(&self, scene: &Scene, ledger: &Ledger) -> bool {
        let plan = &scene.plan;
        let settings = &plan.settings;
        let drained_for = scene.now - scene.draining_since;
        let has_lingered = may_have_passed(scene.now - self.connected_at, settings.linger_timeout)
            || scene.is_draining && may_have_passed(drained_for, settings.drain_linger);
        let budget = u64::from(plan.settings.outbound_bytes_max);
        let has_spoken = self.close_sent.is_some() || self.fault_sent.is_some();
        let final_chunk_fits = self.frame_bytes_max(ledger) + CLOSE_BYTES <= budget
            && !(has_spoken && self.unread_bytes(ledger) + CLOSE_BYTES > budget);
        // While it has not seen the 101, it may still be in its handshake.
        let may_be_reset_mid_frame = self.status.is_none()
            && (scene.is_draining
                || self.is_sent_to_api(plan)
                // Told that there is no slot, while something of what it has sent is unread.
                || self.is_handed_back
                || plan.has_storms);
        has_lingered || plan.is_tight() || may_be_reset_mid_frame || !final_chunk_fits
    }

    /// Nothing is under way: whatever this peer is due has come.
    pub(crate) fn check_quiet(&self, plan: &Plan, is_accepted: bool, ledger: &Ledger) {
        if self.is_gone() || self.is_stalled || self.has_outbox() {
            return;
        }
        if self.has_sent_fin {
            let is_kept = self.is_sent_to_api(plan) || !is_accepted;
            assert!(is_kept, "peer {}: FIN without an answer", self.number);
            return;
        }
        if self.status.is_none() {
            let waits = matches!(self.errand, Errand::Unfinished) || !is_accepted;
            assert!(waits, "peer {}: a request without an answer", self.number);
            return;
        }
        if self.close_sent.is_some() || self.fault_sent.is_some() {
            assert!(self.close_received.is_some(), "a close without an answer");
        }
        assert!(
            self.close_received.is_none() && self.status == Some(101),
            "FIN follows the final chunk"
        );
        assert!(self.expected.is_empty(), "missing: {:?}", self.expected);
        for subscription in &self.subscriptions {
            let len = ledger.len(subscription.channel);
            let next = subscription.next.or(subscription.required);
            if subscription.channel != TINY {
                assert_eq!(next, Some(len), "channel {}: lost", subscription.channel);
            }
        }
        self.check_tiny(true, ledger);
    }

    /// The nameless publications are a run of their channel; of all of its end, when everything has come.
    pub(crate) fn check_tiny(&self, has_all: bool, ledger: &Ledger) {
        let Some(tiny) = self.subscriptions.iter().find(|one| one.channel == TINY) else {
            return;
        };
        let Some(required) = tiny.required else {
            assert!(tiny.tiny.is_empty());
            return;
        };
        let last = ledger.len(TINY).checked_sub(tiny.tiny.len());
        let last = last.expect("more came than was published");
        let first = if has_all { last } else { tiny.earliest };
        let is_run_from = |start: usize| {
            tiny.tiny
                .iter()
                .enumerate()
                .all(|(at, (is_text, content))| {
                    let publication = ledger.at(TINY, start + at);
                    publication.is_text == *is_text && publication.content == *content
                })
        };
        let is_run = (first..=last.min(required)).any(is_run_from);
        assert!(
            is_run,
            "what came of the tiny channel is no run of it: {tiny:?}"
        );
    }
}
