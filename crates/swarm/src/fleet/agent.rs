//! `myriad swarm agent`: waits for a controller, works for it, and waits for the next one.

mod clocks;
mod orders;

use super::FleetError;
use super::Nats;
use super::crew::Crew;
use super::messages::{
    Beacon, BeaconOrder, Capacity, FileKind, HELLO, Hello, read, shown_name, subject_of_agent,
    subject_of_run, written,
};
use super::offset::Offset;
use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Prepared;
use crate::engine::shared::Ending;
use crate::interrupt::Interrupt;
use crate::machine::Here;
use crate::random;
use async_nats::{Client, Message, Subscriber};
use clocks::compare_once;
use futures_util::StreamExt as _;
use myriad_reactor::{Driver, descriptor_limit};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{interval, sleep};

/// How often an agent says that it is there.
const HELLO_EVERY: Duration = Duration::from_secs(1);

/// How often it tells its figures.
const STATE_EVERY: Duration = Duration::from_millis(200);

/// Without a beacon for so long the controller is gone.
const CONTROLLER_GONE: Duration = Duration::from_secs(5);

/// How often clocks are compared during a run.
const CLOCK_EVERY: Duration = Duration::from_secs(10);

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
        let client = options.nats.connect(&format!("myriad agent {name}")).await?;
        let id = format!("{:016x}", random::seed());
        let failed = |error: &dyn std::fmt::Display| FleetError::Lost(error.to_string());
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
                    None => return Err(FleetError::Lost("the connection ended".to_owned())),
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
