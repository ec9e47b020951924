//! What an agent does when its controller asks.

use super::clocks::compare;
use super::{Agent, CLOCK_EVERY, Ready, Work};
use crate::clock::{Clock as _, RunClock};
use crate::fleet::crew::Crew;
use crate::fleet::messages::{
    Answer, FILE_BYTES_MAX, FileKind, Job, Request, is_id, shown_name, subject_of_run,
};
use crate::fleet::preparing::prepare;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A start that is later than this is none.
const START_AHEAD_MAX: Duration = Duration::from_secs(60);

impl<S: Fn(&str)> Agent<'_, S> {
    /// Does what is asked; none if who asks is not the one it works for.
    pub(super) async fn carry_out(&mut self, request: Request) -> Option<Answer> {
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
            Request::Prepare { job, .. } => Some(self.prepare(*job).await),
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
            heard: Instant::now(),
            files: BTreeMap::new(),
            ready: None,
            start: None,
            crew: None,
            next_clock: Instant::now() + CLOCK_EVERY,
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

    async fn prepare(&mut self, job: Job) -> Answer {
        let Some(work) = &mut self.work else {
            let reason = "it works for nobody".to_owned();
            return Answer::Refused { reason };
        };
        let prepared = match prepare(&work.files, job, &self.id) {
            Ok(prepared) => prepared,
            Err(reason) => return Answer::Refused { reason },
        };
        let run = work.run.clone();
        let here = RunClock::start();
        let Some(offset) = compare(&self.client, &run, here).await else {
            let reason = "the controller's clock does not answer".to_owned();
            return Answer::Refused { reason };
        };
        work.ready = Some(Ready {
            prepared,
            clock: here.shifted(offset.nanos),
            offset,
        });
        Answer::Ready { clock: offset }
    }

    /// Starts the threads: it is time.
    pub(super) fn start(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.start = None;
        let Some(ready) = work.ready.take() else {
            return;
        };
        match Crew::start(ready.prepared, ready.clock, ready.offset) {
            Ok(crew) => {
                let terminals = myriad_units::counted(crew.terminals(), "terminal");
                (self.say)(&format!("{} has {terminals}", self.name));
                work.crew = Some(crew);
            }
            Err(error) => {
                (self.say)(&format!("a thread could not be started: {error}"));
                work.is_over = true;
            }
        }
    }
}
