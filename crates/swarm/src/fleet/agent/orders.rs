//! What an agent does when its controller asks.

use super::clocks::compare;
use super::{Agent, CLOCK_EVERY, Ready, Work};
use crate::clock::{Clock as _, RunClock};
use crate::fleet::messages::{
    Answer, FILE_BYTES_MAX, FileKind, Job, Request, is_id, shown_name, subject_of_run, written,
};
use crate::fleet::preparing::prepare;
use crate::fleet::state::State;
use crate::fleet::threads::AgentThreads;
use crate::run::RunError;
use async_nats::{Client, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};

/// A start that is later than this is none.
const START_AHEAD_MAX: Duration = Duration::from_secs(60);

/// An agent that gets ready, and where its answer goes.
pub(super) struct Preparing {
    task: JoinHandle<Result<Ready, String>>,
    reply: Subject,
}

/// Reads the scenario, which may take a while, and compares clocks.
async fn get_ready(
    (files, job, id): (BTreeMap<FileKind, Vec<u8>>, Job, String),
    (client, run): (Client, String),
) -> Result<Ready, String> {
    let prepared = spawn_blocking(move || prepare(&files, job, &id)).await;
    let prepared = prepared.map_err(|_| "reading the scenario failed; look at its output")??;
    let here = RunClock::start();
    let offset = compare(client, run, here).await;
    let offset = offset.ok_or("the controller's clock does not answer")?;
    Ok(Ready {
        prepared,
        clock: here.shifted(offset.nanos),
        offset,
    })
}

impl<S: Fn(&str)> Agent<'_, S> {
    /// Does what is asked. No answer if who asks is not the one it works for, or if the answer comes later.
    pub(super) async fn carry_out(&mut self, request: Request, reply: &Subject) -> Option<Answer> {
        let run = match &request {
            Request::Claim { .. } => None,
            Request::File { run, .. }
            | Request::Prepare { run, .. }
            | Request::Start { run, .. }
            | Request::Release { run } => Some(run.clone()),
        };
        if let Some(run) = run {
            let is_ours = self.work.as_ref().is_some_and(|work| work.run == run);
            if !is_ours {
                return None;
            }
        }
        match request {
            Request::Claim {
                run,
                controller,
                version,
            } => self.claim(run, &controller, &version).await,
            Request::File {
                file, at, base64, ..
            } => self.take_file(file, at, &base64),
            Request::Prepare { job, .. } => {
                self.begin_preparing(*job, reply.clone());
                None
            }
            Request::Start { at, .. } => {
                let work = self.work.as_mut()?;
                let ready = work.ready.as_ref()?;
                if at.since(ready.clock.now()) > START_AHEAD_MAX {
                    let reason = "the start is more than a minute ahead".to_owned();
                    return Some(Answer::Refused { reason });
                }
                work.start = Some(at);
                Some(Answer::Done)
            }
            Request::Release { .. } => {
                self.work.as_mut()?.is_over = true;
                Some(Answer::Done)
            }
        }
    }

    async fn claim(&mut self, run: String, controller: &str, version: &str) -> Option<Answer> {
        if let Some(work) = &self.work {
            let with = work.controller.clone();
            return Some(match work.run == run {
                // The answer to the first one was lost.
                true => Answer::Done,
                false => Answer::Busy { with },
            });
        }
        if !is_id(&run) {
            return None;
        }
        if version != env!("CARGO_PKG_VERSION") {
            let own = env!("CARGO_PKG_VERSION");
            let reason = format!("it has version {own} of myriad; install the same everywhere");
            return Some(Answer::Refused { reason });
        }
        let beacons = self.client.subscribe(subject_of_run(&run, "beacon"));
        let beacons = beacons.await.ok()?;
        let controller = shown_name(controller);
        (self.say)(&format!("{} works for {controller}", self.name));
        self.work = Some(Work {
            run,
            controller,
            beacons,
            silent_steps: 0,
            files: BTreeMap::new(),
            preparing: None,
            ready: None,
            start: None,
            threads: None,
            next_clock: Instant::now() + CLOCK_EVERY,
            clocks: None,
            is_over: false,
        });
        Some(Answer::Done)
    }

    /// Takes a part of a file, each behind the one before.
    fn take_file(&mut self, kind: FileKind, at: usize, base64: &str) -> Option<Answer> {
        let file = self.work.as_mut()?.files.entry(kind).or_default();
        let part = STANDARD.decode(base64).ok()?;
        // A part whose answer was lost comes again.
        if at > file.len() || at + part.len() > FILE_BYTES_MAX {
            let reason = "a part of a file is missing, or it is too large".to_owned();
            return Some(Answer::Refused { reason });
        }
        file.truncate(at);
        file.extend(part);
        Some(Answer::Done)
    }

    /// Begins to get ready, while the agent goes on saying that it is there.
    fn begin_preparing(&mut self, job: Job, reply: Subject) {
        let Some(work) = &mut self.work else { return };
        if work.preparing.is_some() {
            return;
        }
        let files = std::mem::take(&mut work.files);
        let ready = get_ready(
            (files, job, self.id.clone()),
            (self.client.clone(), work.run.clone()),
        );
        work.preparing = Some(Preparing {
            task: tokio::spawn(ready),
            reply,
        });
    }

    /// Answers when it is ready, or cannot be.
    pub(super) async fn answer_prepared(&mut self) {
        let Some(work) = &mut self.work else { return };
        let is_finished = |preparing: &mut Preparing| preparing.task.is_finished();
        let Some(preparing) = work.preparing.take_if(is_finished) else {
            return;
        };
        let failed = |_| Err("it could not get ready; look at its output".to_owned());
        let answer = match preparing.task.await.unwrap_or_else(failed) {
            Ok(ready) => {
                let clock = ready.offset;
                work.ready = Some(ready);
                Answer::Ready { clock }
            }
            Err(reason) => Answer::Refused { reason },
        };
        let answer = written(&answer).into();
        let _ = self.client.publish(preparing.reply, answer).await;
    }

    /// Starts the threads: it is time.
    pub(super) async fn start(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.start = None;
        let Some(ready) = work.ready.take() else {
            return;
        };
        match AgentThreads::start(ready.prepared, ready.clock, ready.offset) {
            Ok(threads) => {
                let terminals = myriad_units::counted(threads.terminals(), "terminal");
                (self.say)(&format!("{} has {terminals}", self.name));
                work.threads = Some(threads);
            }
            Err(error) => {
                let reason = RunError::Start(error).to_string();
                (self.say)(&reason);
                let subject = subject_of_run(&work.run, &format!("state.{}", self.id));
                let state = written(&State::failed(1, reason)).into();
                let _ = self.client.publish(subject, state).await;
                work.is_over = true;
            }
        }
    }
}
