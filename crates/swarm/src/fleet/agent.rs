//! `myriad swarm agent`: waits for a controller, works for it, and waits for the next one.

mod clocks;
mod orders;

use super::FleetError;
use super::Nats;
use super::messages::{
    BYTES_MAX, Beacon, Capacity, FileKind, HELLO, Hello, read, shown_name, subject_of_agent,
    subject_of_run, written,
};
use super::offset::Offset;
use super::threads::AgentThreads;
use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Prepared;
use crate::engine::shared::{Ending, Order};
use crate::interrupt::Interrupt;
use crate::machine::Here;
use crate::random;
use async_nats::{Client, Message, Subscriber};
use clocks::compare;
use futures_util::{FutureExt as _, StreamExt as _};
use myriad_reactor::{Driver, descriptor_limit};
use orders::Preparing;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often an agent says that it is there.
const HELLO_EVERY: Duration = Duration::from_secs(1);

/// How often it tells its figures.
const STATE_EVERY: Duration = Duration::from_millis(200);

/// Steps in a row without a beacon after which the controller is gone: 5 s. Time in which the agent itself did not run says nothing
/// of its controller, whose beacons wait in the socket meanwhile.
const SILENT_STEPS_MAX: u32 = 25;

const _: () = assert!(STATE_EVERY.as_millis() * SILENT_STEPS_MAX as u128 == 5_000);

/// Most beacons that are looked at in one step: a flood of them must not make the agent silent.
const BEACONS_MAX: usize = 64;

/// How long connections may take to close before the process ends.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

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
        let client = options
            .nats
            .connect(&format!("myriad agent {name}"))
            .await?;
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
    /// Steps since the controller was last heard.
    silent_steps: u32,
    files: BTreeMap<FileKind, Vec<u8>>,
    preparing: Option<Preparing>,
    ready: Option<Ready>,
    start: Option<Nanos>,
    threads: Option<AgentThreads>,
    next_clock: Instant,
    /// Clocks are being compared.
    clocks: Option<JoinHandle<Option<Offset>>>,
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
        // Steps measure silence, so none of them may follow another at once.
        states.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !interrupt.is_made() {
            let start = self.work.as_ref().and_then(Work::starts_in);
            tokio::select! {
                biased;
                () = start_time(start) => self.start().await,
                // Before what others send: a flood must not make it silent.
                _ = states.tick() => self.step().await,
                _ = hellos.tick() => self.greet().await,
                message = asked.next() => match message {
                    Some(message) => self.answer(message).await,
                    None => return Err(FleetError::Lost("the connection ended".to_owned())),
                },
                message = next_beacon(&mut self.work) => self.handle_beacon(message.as_ref()),
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
        let Some(answer) = self.carry_out(request, &reply).await else {
            return;
        };
        let _ = self.client.publish(reply, written(&answer).into()).await;
    }

    fn handle_beacon(&mut self, message: Option<&Message>) {
        let Some(work) = &mut self.work else { return };
        let Some(message) = message else {
            work.is_over = true;
            return;
        };
        let Some(beacon) = read::<Beacon>(&message.payload) else {
            return;
        };
        work.silent_steps = 0;
        // What was told to end does not begin again.
        if let Some(threads) = work.threads.as_mut().filter(|_| !work.is_over) {
            threads.handle_beacon(&beacon);
        }
        let is_closed = matches!(beacon.order, Order::Close(_)) && work.threads.is_none();
        if beacon.lost.contains(&self.id) || is_closed {
            work.is_over = true;
        }
    }

    /// Hears what has come by now: the controller is judged by what it has said, not by what was read of that.
    fn handle_waiting_beacons(&mut self) {
        for _ in 0..BEACONS_MAX {
            let Some(work) = &mut self.work else { return };
            let Some(message) = work.beacons.next().now_or_never() else {
                return;
            };
            self.handle_beacon(message.as_ref());
        }
    }

    /// Tells how far it is, and ends what is over.
    async fn step(&mut self) {
        self.handle_waiting_beacons();
        let Some(work) = &mut self.work else { return };
        work.silent_steps += 1;
        if work.silent_steps >= SILENT_STEPS_MAX && !work.is_over {
            work.is_over = true;
            (self.say)(&format!("{} is gone", work.controller));
        }
        self.answer_prepared().await;
        self.tell_state().await;
        self.compare_clocks().await;
        let Some(work) = &mut self.work else { return };
        if !work.is_over {
            return;
        }
        if let Some(threads) = &mut work.threads {
            threads.close(Ending::Reset);
            if !threads.is_gone() {
                return;
            }
        }
        if let Some(threads) = self.work.take().and_then(|work| work.threads) {
            threads.join();
        }
        (self.say)(&format!("agent {} waits for a controller", self.name));
    }

    /// Tells its figures, or that they do not fit into a message.
    async fn tell_state(&mut self) {
        let Some(work) = &mut self.work else { return };
        let Some(threads) = &mut work.threads else {
            return;
        };
        let mut state = written(&threads.state());
        if let Some(reason) = too_large(state.len(), self.client.max_payload()) {
            (self.say)(&reason);
            threads.fail(reason);
            state = written(&threads.state());
        }
        let subject = subject_of_run(&work.run, &format!("state.{}", self.id));
        let _ = self.client.publish(subject, state.into()).await;
    }

    /// Compares clocks now and then. Exchanges take their time, and what the agent says and hears does not wait for them.
    async fn compare_clocks(&mut self) {
        let Some(work) = &mut self.work else { return };
        let Some(threads) = &mut work.threads else {
            return;
        };
        if let Some(clocks) = work.clocks.take_if(|clocks| clocks.is_finished())
            && let Ok(Some(offset)) = clocks.await
        {
            threads.note_clock(offset);
        }
        let is_due = Instant::now() >= work.next_clock && !work.is_over;
        if is_due && work.clocks.is_none() {
            work.next_clock = Instant::now() + CLOCK_EVERY;
            let (client, run, here) = (self.client.clone(), work.run.clone(), threads.clock());
            work.clocks = Some(tokio::spawn(compare(client, run, here)));
        }
    }

    /// Ends before the process does.
    async fn end_at_once(&mut self) {
        if let Some(mut threads) = self.work.take().and_then(|work| work.threads) {
            threads.close(Ending::Reset);
            let begun = Instant::now();
            while !threads.is_gone() && begun.elapsed() < CLOSED_WITHIN {
                sleep(Duration::from_millis(10)).await;
            }
        }
        let _ = self.client.flush().await;
    }
}

/// Why figures of so many bytes cannot be told, if they cannot: the NATS server takes `server_max`, and a controller looks at no
/// larger message than [`BYTES_MAX`].
fn too_large(bytes: usize, server_max: usize) -> Option<String> {
    let most = server_max.min(BYTES_MAX);
    let remedy = match server_max < BYTES_MAX {
        true => ", or raise max_payload of the NATS server",
        false => "",
    };
    (bytes > most).then(|| {
        format!(
            "its figures have {bytes} bytes, and a message may have {most}; use fewer targets or flows{remedy}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_room_of_a_message_that_the_server_and_the_controller_take() {
        assert_eq!(too_large(BYTES_MAX, 8 * BYTES_MAX), None);
        let ours = too_large(BYTES_MAX + 1, 8 * BYTES_MAX).unwrap();
        assert!(ours.contains("may have 1048576"), "{ours}");
        assert!(
            !ours.contains("max_payload"),
            "nobody would read it: {ours}"
        );
        assert_eq!(too_large(4096, 4096), None);
        let theirs = too_large(4097, 4096).unwrap();
        assert!(theirs.contains("have 4097 bytes") && theirs.contains("raise max_payload"));
    }
}
