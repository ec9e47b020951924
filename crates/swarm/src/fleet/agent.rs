//! `myriad swarm agent`: waits for a controller, works for it, and waits for the next one.

use super::FleetError;
use super::crew::Crew;
use super::messages::{
    Answer, Beacon, BeaconOrder, Capacity, FILE_BYTES_MAX, FileKind, HELLO, Hello, Job, Request,
    read, shown_name, subject_of_agent, subject_of_run, written,
};
use super::nats::{Nats, connect};
use super::offset::{Exchange, Offset, best, wall_now};
use super::preparing::prepare;
use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Prepared;
use crate::engine::shared::Ending;
use crate::interrupt::Interrupt;
use crate::machine::Here;
use crate::random;
use async_nats::{Client, Message, Subscriber};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use myriad_reactor::{Driver, descriptor_limit};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{interval, sleep, timeout};

/// How often an agent says that it is there.
const HELLO_EVERY: Duration = Duration::from_secs(1);

/// How often it tells its figures.
const STATE_EVERY: Duration = Duration::from_millis(200);

/// Without a beacon for so long the controller is gone.
const CONTROLLER_GONE: Duration = Duration::from_secs(5);

/// How often clocks are compared during a run.
const CLOCK_EVERY: Duration = Duration::from_secs(10);

/// Exchanges of a comparison, and the time for one of them.
const EXCHANGES: usize = 16;
const EXCHANGE_WITHIN: Duration = Duration::from_secs(1);

/// A start that is later than this is none.
const START_AHEAD_MAX: Duration = Duration::from_secs(60);

/// An agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where controllers are.
    pub nats: Nats,
    /// What people call it.
    pub name: String,
}

/// Works for controllers, one after the other, until it is interrupted. `say` tells people what happens, a line each time.
///
/// # Errors
/// The NATS server cannot be reached, or not any more.
pub fn serve_agent(
    options: &AgentOptions,
    interrupt: &Interrupt,
    say: impl Fn(&str),
) -> Result<(), FleetError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(FleetError::Start)?;
    runtime.block_on(async {
        let name = shown_name(&options.name);
        let client = connect(&options.nats, &format!("myriad agent {name}")).await?;
        let id = format!("{:016x}", random::seed());
        let failed = |error: &dyn std::fmt::Display| FleetError::Nats(error.to_string());
        let asked = client.subscribe(subject_of_agent(&id)).await;
        let mut asked = asked.map_err(|error| failed(&error))?;
        client.flush().await.map_err(|error| failed(&error))?;
        say(&format!("agent {name} waits for a controller"));
        let mut agent = Agent {
            id,
            name,
            client,
            capacity: capacity(),
            work: None,
            say: &say,
        };
        let result = agent.serve(&mut asked, interrupt).await;
        agent.end_at_once().await;
        result
    })
}

/// What this machine allows.
fn capacity() -> Capacity {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let has_uring = Driver::probe_io_uring().is_ok();
    let driver = match has_uring {
        true => Driver::IoUring,
        false => Driver::Epoll,
    };
    Capacity {
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: myriad_usage::available_bytes().unwrap_or(0),
        descriptors: descriptor_limit().map_or(1024, |limit| limit as u64),
        ports: Here::probe(driver).ports_per_source(),
        io_uring: has_uring,
    }
}

/// An agent that is there.
struct Agent<'a, S> {
    id: String,
    name: String,
    client: Client,
    capacity: Capacity,
    work: Option<Work>,
    say: &'a S,
}

/// What it does for a controller.
struct Work {
    run: String,
    controller: String,
    beacons: Subscriber,
    /// When the controller was last heard.
    heard: Instant,
    files: BTreeMap<FileKind, Vec<u8>>,
    ready: Option<Ready>,
    start: Option<Nanos>,
    crew: Option<Crew>,
    next_clock: Instant,
    /// When it was released, or lost its controller.
    is_over: bool,
}

/// A crowd that is prepared.
struct Ready {
    prepared: Prepared,
    clock: RunClock,
    offset: Offset,
}

impl Work {
    /// When the threads are to start, if they wait for that.
    fn starts_in(&self) -> Option<Duration> {
        let ready = self.ready.as_ref()?;
        Some(self.start?.since(ready.clock.now()))
    }
}

/// The next beacon; never without a controller.
async fn next_beacon(work: &mut Option<Work>) -> Option<Message> {
    match work {
        Some(work) => work.beacons.next().await,
        None => std::future::pending().await,
    }
}

/// The time to start; never without one.
async fn start_time(wait: Option<Duration>) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}

impl<S: Fn(&str)> Agent<'_, S> {
    async fn serve(
        &mut self,
        asked: &mut Subscriber,
        interrupt: &Interrupt,
    ) -> Result<(), FleetError> {
        let (mut hellos, mut states) = (interval(HELLO_EVERY), interval(STATE_EVERY));
        while !interrupt.is_made() {
            let start = self.work.as_ref().and_then(Work::starts_in);
            tokio::select! {
                biased;
                () = start_time(start) => self.start(),
                // Before what others send: a flood must not make it silent.
                _ = states.tick() => self.step().await,
                _ = hellos.tick() => self.greet().await,
                message = asked.next() => match message {
                    Some(message) => self.answer(message).await,
                    None => return Err(FleetError::Nats("the connection ended".to_owned())),
                },
                message = next_beacon(&mut self.work) => self.hear(message.as_ref()),
            }
        }
        Ok(())
    }

    async fn greet(&self) {
        let hello = Hello {
            id: self.id.clone(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: self.capacity,
            busy_with: self.work.as_ref().map(|work| work.controller.clone()),
        };
        // One that is lost is followed by the next.
        let _ = self.client.publish(HELLO, written(&hello).into()).await;
    }

    /// Answers who asks. What nobody understands has no answer.
    async fn answer(&mut self, message: Message) {
        let (Some(request), Some(reply)) = (read(&message.payload), message.reply) else {
            return;
        };
        let Some(answer) = self.carry_out(request).await else {
            return;
        };
        let _ = self.client.publish(reply, written(&answer).into()).await;
    }

    /// Does what is asked; none if who asks is not the one it works for.
    async fn carry_out(&mut self, request: Request) -> Option<Answer> {
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
        if !super::messages::is_id(&run) {
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
    fn start(&mut self) {
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

    fn hear(&mut self, message: Option<&Message>) {
        let Some(work) = &mut self.work else { return };
        let Some(message) = message else {
            work.is_over = true;
            return;
        };
        let Some(beacon) = read::<Beacon>(&message.payload) else {
            return;
        };
        work.heard = Instant::now();
        // What was told to end does not begin again.
        if let Some(crew) = work.crew.as_mut().filter(|_| !work.is_over) {
            crew.obey(&beacon);
        }
        let is_closed = matches!(beacon.order, BeaconOrder::Close(_)) && work.crew.is_none();
        if beacon.lost.contains(&self.id) || is_closed {
            work.is_over = true;
        }
    }

    /// Tells how far it is, and ends what is over.
    async fn step(&mut self) {
        let Some(work) = &mut self.work else { return };
        let is_silent = work.heard.elapsed() >= CONTROLLER_GONE;
        if is_silent && !work.is_over {
            work.is_over = true;
            (self.say)(&format!("{} is gone", work.controller));
        }
        if let Some(crew) = &mut work.crew {
            let subject = subject_of_run(&work.run, &format!("state.{}", self.id));
            let state = written(&crew.state());
            let most = self.client.max_payload();
            if state.len() > most {
                (self.say)(&format!(
                    "figures have {} bytes, and the NATS server takes {most}: raise its max_payload",
                    state.len()
                ));
            }
            let _ = self.client.publish(subject, state.into()).await;
            if Instant::now() >= work.next_clock && !is_silent {
                work.next_clock = Instant::now() + CLOCK_EVERY;
                if let Some(offset) = compare_once(&self.client, &work.run, crew).await {
                    crew.note_clock(offset);
                }
            }
            if work.is_over {
                crew.close(Ending::Reset);
            }
            if !crew.is_gone() || !work.is_over {
                return;
            }
        }
        if work.is_over {
            if let Some(crew) = self.work.take().and_then(|work| work.crew) {
                crew.join();
            }
            (self.say)(&format!("agent {} waits for a controller", self.name));
        }
    }

    /// Ends before the process does.
    async fn end_at_once(&mut self) {
        if let Some(mut crew) = self.work.take().and_then(|work| work.crew) {
            crew.close(Ending::Reset);
            let begun = Instant::now();
            while !crew.is_gone() && begun.elapsed() < CONTROLLER_GONE {
                sleep(Duration::from_millis(10)).await;
            }
        }
        let _ = self.client.flush().await;
    }
}

/// Compares clocks during a run: `here` reads the controller's time already, if nothing has drifted.
async fn compare_once(client: &Client, run: &str, crew: &Crew) -> Option<Offset> {
    let offset = compare(client, run, crew.clock()).await?;
    Some(Offset {
        nanos: crew.offset().nanos.saturating_add(offset.nanos),
        ..offset
    })
}

/// Compares this clock with the controller's.
async fn compare(client: &Client, run: &str, here: RunClock) -> Option<Offset> {
    let subject = subject_of_run(run, "clock");
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let (sent, wall_sent) = (here.now().0, wall_now());
        let asked = client.request(subject.clone(), "".into());
        let Ok(Ok(answer)) = timeout(EXCHANGE_WITHIN, asked).await else {
            break;
        };
        let answered = here.now().0;
        if let Some(told) = read(&answer.payload) {
            exchanges.push(Exchange {
                sent,
                answered,
                wall_sent,
                told,
            });
        }
    }
    best(&exchanges)
}
