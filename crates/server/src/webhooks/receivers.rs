//! Those who are told: endpoints with their tasks. A reload changes them.

use super::counts::WebhookCounts;
use super::endpoint::Endpoint;
use crate::config::{WebhookEndpoint, event_name};
use myriad_shard::{NoticeKind, NoticeSettings};
use myriad_units::counted;
use reqwest::Client;
use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

/// An endpoint that a reload removes has so long for the events that wait.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// All endpoints.
#[derive(Debug)]
pub(crate) struct Receivers {
    client: Client,
    /// Names this run of the server, as `info` does.
    server: Arc<str>,
    counts: WebhookCounts,
    /// What shards note. It stays until a restart.
    noted: NoticeSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: Vec<Member>,
    /// Removed, and perhaps not done.
    leaving: Vec<Arc<Endpoint>>,
    tasks: JoinSet<()>,
    /// The numbers of the last batches, by name: also of endpoints that have been removed.
    sequences: HashMap<Arc<str>, Arc<AtomicU64>>,
    /// The server ends.
    is_over: bool,
}

#[derive(Debug)]
struct Member {
    endpoint: Arc<Endpoint>,
    ending: Ending,
}

/// How an endpoint's task is told to end.
#[derive(Debug)]
struct Ending {
    /// True once no more events come.
    closing: watch::Sender<bool>,
    /// By when it must have ended.
    deadline: oneshot::Sender<Instant>,
}

impl Receivers {
    pub(super) fn new(
        client: Client,
        server: Arc<str>,
        counts: WebhookCounts,
        noted: NoticeSettings,
    ) -> Self {
        Self {
            client,
            server,
            counts,
            noted,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who are told now.
    pub(super) fn told(&self) -> Vec<Arc<Endpoint>> {
        let state = self.state();
        let told = state.told.iter();
        told.map(|member| Arc::clone(&member.endpoint)).collect()
    }

    /// Tells these from now on. An endpoint of the same name keeps its queue. One that is not among them any more is sent what
    /// waits, for [`LEAVE_TIMEOUT`] at most. Call it inside the runtime.
    pub(crate) fn replace(&self, endpoints: &[WebhookEndpoint]) {
        let mut state = self.state();
        if state.is_over {
            return;
        }
        state
            .leaving
            .retain(|endpoint| Arc::strong_count(endpoint) > 1);
        while state.tasks.try_join_next().is_some() {}
        let mut before = std::mem::take(&mut state.told);
        for config in endpoints {
            self.warn_of_unnoted(config);
            let same = before
                .iter()
                .position(|member| *member.endpoint.name() == config.name);
            let member = match same {
                Some(index) => self.reconfigured(&mut state, before.swap_remove(index), config),
                None => self.started(&mut state, config),
            };
            state.told.push(member);
        }
        for Member { endpoint, ending } in before {
            tracing::info!(
                "webhook endpoint {}: it is told nothing new",
                endpoint.name()
            );
            ending.closing.send_replace(true);
            // It fails when the task has ended.
            let _ = ending.deadline.send(Instant::now() + LEAVE_TIMEOUT);
            state.leaving.push(endpoint);
        }
    }

    fn reconfigured(&self, state: &mut State, member: Member, config: &WebhookEndpoint) -> Member {
        if member.endpoint.reconfigure(config) {
            let ending = spawn(&mut state.tasks, &member.endpoint);
            return Member { ending, ..member };
        }
        member
    }

    fn started(&self, state: &mut State, config: &WebhookEndpoint) -> Member {
        let sequence = state.sequences.entry(Arc::clone(&config.name)).or_default();
        let endpoint = Arc::new(Endpoint::new(
            config.clone(),
            Arc::clone(&self.server),
            Arc::clone(sequence),
            self.client.clone(),
            self.counts.of(&config.name),
        ));
        let ending = spawn(&mut state.tasks, &endpoint);
        Member { endpoint, ending }
    }

    /// Shards note what endpoints wanted at the start. A channel that was occupied before nobody noted it would be vacated without
    /// having been occupied.
    fn warn_of_unnoted(&self, config: &WebhookEndpoint) {
        let is_noted = |kind| match kind {
            NoticeKind::Occupied | NoticeKind::Vacated => self.noted.vacated_delay.is_some(),
            NoticeKind::Connected | NoticeKind::Disconnected => self.noted.clients,
        };
        let wanted = NoticeKind::ALL
            .into_iter()
            .filter(|kind| config.events[*kind as usize]);
        let missing: Vec<_> = wanted
            .filter(|kind| !is_noted(*kind))
            .map(event_name)
            .collect();
        if !missing.is_empty() {
            tracing::warn!(
                "webhook endpoint {}: nobody wanted {} at the start, so these begin with a restart",
                config.name,
                missing.join(" and "),
            );
        }
    }

    /// No more events come: sends what is left, until the deadline.
    pub(super) async fn finish(&self, deadline: Instant) {
        let (mut tasks, endpoints) = {
            let mut state = self.state();
            state.is_over = true;
            for member in &state.told {
                member.ending.closing.send_replace(true);
            }
            let told = std::mem::take(&mut state.told);
            let told = told.into_iter().map(|member| member.endpoint);
            let endpoints: Vec<_> = told.chain(std::mem::take(&mut state.leaving)).collect();
            (std::mem::take(&mut state.tasks), endpoints)
        };
        let all_sent = async { while tasks.join_next().await.is_some() {} };
        if timeout_at(deadline, all_sent).await.is_ok() {
            return;
        }
        tasks.shutdown().await;
        for endpoint in endpoints {
            give_up(&endpoint, "before the server ended");
        }
    }
}

fn spawn(tasks: &mut JoinSet<()>, endpoint: &Arc<Endpoint>) -> Ending {
    let (closing, is_closing) = watch::channel(false);
    let (deadline, leaves) = oneshot::channel();
    let endpoint = Arc::clone(endpoint);
    tasks.spawn(async move {
        let too_late = async {
            match leaves.await {
                Ok(deadline) => sleep_until(deadline).await,
                // The server ends, and has a deadline of its own.
                Err(_) => pending().await,
            }
        };
        tokio::select! {
            () = Arc::clone(&endpoint).run(is_closing) => {}
            () = too_late => give_up(&endpoint, "after it was removed"),
        }
    });
    Ending { closing, deadline }
}

fn give_up(endpoint: &Endpoint, when: &str) {
    let unsent = endpoint.abandon();
    if unsent > 0 {
        tracing::warn!(
            "webhook endpoint {}: {} not sent {when}",
            endpoint.name(),
            counted(unsent, "event"),
        );
    }
}
