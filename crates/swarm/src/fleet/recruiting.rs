//! A controller finds its agents, divides the crowd among them, and has them prepare and start.

use super::FleetError;
use super::division::{Bound, Indivisible, bound, divide};
use super::link::{Link, Member};
use super::messages::{
    AGENTS_MAX, Answer, FILE_BYTES_MAX, FILE_PART_BYTES, FileKind, HELLO, Hello, Job, Request,
    driver_name, is_id, read, shown_name, subject_of_agent, subject_of_run, written,
};
use super::nats::{Nats, connect};
use super::offset::Offset;
use crate::clock::{Clock as _, RunClock};
use crate::config::{Config, Dealt};
use crate::engine::deal::{Deal, Slice};
use crate::engine::shared::Shared;
use crate::interrupt::Interrupt;
use crate::random;
use crate::report::Report;
use crate::run::{RunError, run_with_agents};
use crate::scenario::Scenario;
use async_nats::{Client, Subscriber};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long an agent may take to read the scenario and to compare clocks.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

/// How far ahead the crowd starts, so that every agent knows in time.
const START_AHEAD: Duration = Duration::from_millis(500);

/// Targets of a fleet's scenario, counted once for each channel that clients are dealt out to: agents tell of each how many are open.
const TARGETS_MAX: usize = 4096;

/// A fleet that is wanted.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Where agents are.
    pub nats: Nats,
    /// How many.
    pub agents: u32,
    /// How long they are waited for.
    pub wait: Duration,
    /// The file of the scenario, and its changes.
    pub scenario: PathBuf,
    /// `KEY=VALUE` each.
    pub sets: Vec<String>,
}

/// An agent that was claimed.
struct Claimed {
    hello: Hello,
    clock: Offset,
}

/// Does a whole run with agents and returns its report, which is also written to wherever the configuration says.
///
/// # Errors
/// There are too few agents, they cannot do their parts, or the run fails.
pub fn run_fleet(
    fleet: &FleetOptions,
    scenario: &Scenario,
    config: &Config,
    interrupt: &Interrupt,
) -> Result<Report, FleetError> {
    check(fleet, config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("fleet")
        .enable_all()
        .build()
        .map_err(FleetError::Start)?;
    let recruiting = Recruiting {
        fleet,
        scenario,
        interrupt,
        run: format!("{:016x}{:016x}", random::seed(), random::seed()),
        controller: controller_name(),
    };
    let mut config = config.clone();
    let (prepared, link) = runtime.block_on(recruiting.recruit(&mut config))?;
    let result = run_with_agents(&config, interrupt, prepared, Arc::clone(&link));
    runtime.block_on(link.release());
    Ok(result?)
}

/// This process as agents name it.
fn controller_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} ({})", shown_name(host.trim()), std::process::id())
}

/// What a fleet does not do is refused before anybody is asked.
fn check(fleet: &FleetOptions, config: &Config) -> Result<(), FleetError> {
    let agents = usize::try_from(fleet.agents).unwrap_or(usize::MAX);
    if !(1..=AGENTS_MAX).contains(&agents) {
        let said = format!("--agents {agents} is out of range; give 1 to {AGENTS_MAX}");
        return Err(FleetError::Division(said));
    }
    // Before anybody is recruited. The run listens there itself.
    if let Some(address) = config.reporting.metrics_listen
        && let Err(error) = TcpListener::bind(address)
    {
        return Err(RunError::Listen { address, error }.into());
    }
    let no = |what, remedy| Err(FleetError::Unsupported(what, remedy));
    if !config.incidents.is_empty() {
        return no(
            "storms, stalls and clients that vanish",
            "leave out `storm`, `stall` and `vanish`, or run it from one machine",
        );
    }
    if config.comeback.when_lost {
        return no(
            "`reconnect.when-lost`",
            "leave it out, or run it from one machine",
        );
    }
    if config.churn_per_s.is_some() && config.publish.is_some() {
        return no(
            "`churn` together with `publish`",
            "nobody could say who was to get a push; leave one of them out",
        );
    }
    let channels = usize::try_from(config.channel_count.unwrap_or(1)).unwrap_or(usize::MAX);
    if config.targets.len().saturating_mul(channels) > TARGETS_MAX {
        return no(
            "more than 4,096 targets, counted once for each of `channel-count`",
            "give fewer",
        );
    }
    Ok(())
}

/// A controller that looks for agents.
struct Recruiting<'a> {
    fleet: &'a FleetOptions,
    scenario: &'a Scenario,
    interrupt: &'a Interrupt,
    /// The secret of the run.
    run: String,
    controller: String,
}

impl Recruiting<'_> {
    async fn recruit(
        &self,
        config: &mut Config,
    ) -> Result<(crate::config::Prepared, Arc<Link>), FleetError> {
        let client = connect(&self.fleet.nats, "myriad swarm").await?;
        let failed = |error: &dyn std::fmt::Display| FleetError::Nats(error.to_string());
        let hellos = client.subscribe(HELLO).await;
        let mut hellos = hellos.map_err(|error| failed(&error))?;
        let states = client.subscribe(subject_of_run(&self.run, "state.*")).await;
        let states = states.map_err(|error| failed(&error))?;
        let clocks = client.subscribe(subject_of_run(&self.run, "clock")).await;
        let clocks = clocks.map_err(|error| failed(&error))?;
        let mut claimed = self.claim_all(&client, &mut hellos).await?;
        drop(hellos);
        let slices = self.divide(config, &claimed)?;
        config.dealt = Some(Dealt {
            deal: Deal::of(slices.clone(), None).expect("slices follow one another"),
            run: u16::try_from(random::seed() & 0xffff).expect("two bytes"),
            seed: random::seed(),
        });
        let prepared = config
            .prepare()
            .map_err(|error| FleetError::Run(RunError::Config(error)))?;
        let members = claimed.iter().zip(&slices).map(|(one, slice)| Member {
            id: one.hello.id.clone(),
            name: one.hello.name.clone(),
            slice: *slice,
        });
        let shared = Shared::gathering(&prepared.plan, claimed.len());
        let clock = RunClock::start();
        let link = Link::start(
            (client.clone(), self.run.clone()),
            members.collect(),
            (Arc::new(shared), clock),
            (states, clocks),
        );
        if let Err(error) = self.prepare_all(&client, config, &mut claimed).await {
            link.release().await;
            return Err(error);
        }
        let at = clock.now().plus(START_AHEAD);
        let started = join_all(claimed.iter().map(|one| {
            let run = self.run.clone();
            let request = Request::Start { run, at };
            self.ask_to_do(&client, &one.hello, request)
        }));
        if let Err(error) = started.await.into_iter().collect::<Result<Vec<_>, _>>() {
            link.release().await;
            return Err(error);
        }
        let clocks = claimed.iter().map(|one| one.clock);
        link.begin(clocks.collect(), at);
        Ok((prepared, link))
    }

    /// Claims as many agents as are wanted, as they say that they are there. Those that are busy may become free.
    async fn claim_all(
        &self,
        client: &Client,
        hellos: &mut Subscriber,
    ) -> Result<Vec<Claimed>, FleetError> {
        let wanted = self.fleet.agents as usize;
        let begun = Instant::now();
        let mut claimed: Vec<Claimed> = Vec::new();
        let mut busy: Vec<(String, String)> = Vec::new();
        while claimed.len() < wanted {
            let is_late = begun.elapsed() >= self.fleet.wait;
            if is_late || self.interrupt.is_made() {
                self.release_all(client, &claimed).await;
                return Err(match is_late {
                    false => FleetError::Interrupted,
                    true => FleetError::TooFew {
                        wanted: self.fleet.agents,
                        free: claimed.len(),
                        busy,
                        waited: self.fleet.wait,
                    },
                });
            }
            // Agents that are claimed hear that somebody is there.
            self.hold(client).await;
            let next = timeout(Duration::from_millis(200), hellos.next()).await;
            let hello: Option<Hello> = next.ok().flatten().and_then(|it| read(&it.payload));
            let Some(mut hello) = hello.filter(|hello| is_id(&hello.id)) else {
                continue;
            };
            hello.name = shown_name(&hello.name);
            if claimed.iter().any(|one| one.hello.id == hello.id) {
                continue;
            }
            if let Some(with) = &hello.busy_with {
                busy.retain(|(name, _)| *name != hello.name);
                if busy.len() < AGENTS_MAX {
                    busy.push((hello.name, shown_name(with)));
                }
                continue;
            }
            let request = Request::Claim {
                run: self.run.clone(),
                controller: self.controller.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            };
            match self.ask(client, &hello.id, &request).await {
                Some(Answer::Done) => claimed.push(Claimed {
                    hello,
                    clock: Offset::default(),
                }),
                Some(Answer::Refused { reason }) => {
                    self.release_all(client, &claimed).await;
                    return Err(FleetError::Agent(hello.name, shown_name(&reason)));
                }
                // Another controller was quicker, or it is gone.
                _ => {}
            }
        }
        // In the order of their names, so that the same fleet gets the same parts.
        claimed.sort_by(|one, other| one.hello.name.cmp(&other.hello.name));
        Ok(claimed)
    }

    /// A beacon before there is a crowd.
    async fn hold(&self, client: &Client) {
        let beacon = super::messages::Beacon {
            number: 0,
            order: super::messages::BeaconOrder::Run,
            connected_at: None,
            schedule: None,
            measured_from: 0,
            lost: Vec::new(),
        };
        let subject = subject_of_run(&self.run, "beacon");
        let _ = client.publish(subject, written(&beacon).into()).await;
    }

    async fn release_all(&self, client: &Client, claimed: &[Claimed]) {
        for one in claimed {
            let run = self.run.clone();
            let _ = self
                .ask(client, &one.hello.id, &Request::Release { run })
                .await;
        }
    }

    async fn ask(&self, client: &Client, id: &str, request: &Request) -> Option<Answer> {
        let asked = client.request(subject_of_agent(id), written(request).into());
        read(&asked.await.ok()?.payload)
    }

    /// Asks for something that has to be done. A question that is lost is asked again.
    async fn ask_to_do(
        &self,
        client: &Client,
        of: &Hello,
        request: Request,
    ) -> Result<Answer, FleetError> {
        for _ in 0..3 {
            match self.ask(client, &of.id, &request).await {
                Some(Answer::Refused { reason }) => {
                    return Err(FleetError::Agent(of.name.clone(), reason));
                }
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
        let said = "it does not answer; look at its output".to_owned();
        Err(FleetError::Agent(of.name.clone(), said))
    }

    /// Divides the crowd by what the agents allow.
    fn divide(&self, config: &Config, claimed: &[Claimed]) -> Result<Vec<Slice>, FleetError> {
        let is_local = config
            .targets
            .iter()
            .all(|target| target.address.ip().is_loopback());
        let destinations: BTreeSet<_> = config.targets.iter().map(|it| it.address).collect();
        let destinations = (!is_local).then_some(destinations.len() as u64);
        let bounds: Vec<Bound> = claimed
            .iter()
            .map(|one| bound(&one.hello.capacity, config.threads, destinations))
            .collect();
        let groups = match config.groups_to_keep(claimed.len()) {
            Ok(groups) => groups,
            Err((what, remedy)) => return Err(FleetError::Unsupported(what, remedy)),
        };
        let terminals = u32::try_from(config.connections).unwrap_or(u32::MAX);
        divide(&bounds, terminals, groups.as_deref()).map_err(|error| {
            let name = |at: usize| &claimed[at].hello.name;
            FleetError::Division(match error {
                Indivisible::Capacity(allowed) => {
                    let limits = claimed.iter().zip(&bounds).map(|(one, bound)| {
                        let (name, most) = (&one.hello.name, bound.terminals);
                        format!("\n  agent {name}: {most} ({})", bound.limit)
                    });
                    let limits: String = limits.collect();
                    format!(
                        "the agents hold {allowed} of {terminals} terminals; give more agents, or more source addresses{limits}"
                    )
                }
                Indivisible::Nothing(at) => format!(
                    "nothing is left for agent {}: there are too few terminals, or too few groups, which stay whole; give fewer --agents",
                    name(at)
                ),
                Indivisible::Group(at) => format!(
                    "agent {} would get more than it holds, because groups stay whole; give smaller groups, or fewer --agents",
                    name(at)
                ),
            })
        })
    }

    /// Hands the scenario to all agents, and has them plan their parts.
    async fn prepare_all(
        &self,
        client: &Client,
        config: &Config,
        claimed: &mut [Claimed],
    ) -> Result<(), FleetError> {
        let files = files(self.fleet, self.scenario)?;
        let dealt = config.dealt.as_ref().expect("it was dealt");
        let prepared = claimed.iter().enumerate().map(|(own, one)| {
            let job = Job {
                sets: self.fleet.sets.clone(),
                connections: config.connections,
                duration: config.duration,
                driver: config.driver.map(|driver| driver_name(driver).to_owned()),
                slices: dealt.deal.slices().to_vec(),
                own,
                run: dealt.run,
                seed: dealt.seed,
            };
            self.prepare(client, &one.hello, &files, job)
        });
        let clocks = join_all(prepared).await;
        for (one, clock) in claimed.iter_mut().zip(clocks) {
            one.clock = clock?;
        }
        Ok(())
    }

    async fn prepare(
        &self,
        client: &Client,
        of: &Hello,
        files: &[(FileKind, Vec<u8>)],
        job: Job,
    ) -> Result<Offset, FleetError> {
        for (file, content) in files {
            for (part, number) in content.chunks(FILE_PART_BYTES).zip(0..) {
                let request = Request::File {
                    run: self.run.clone(),
                    file: *file,
                    at: number * FILE_PART_BYTES,
                    base64: STANDARD.encode(part),
                };
                self.ask_to_do(client, of, request).await?;
            }
        }
        let request = Request::Prepare {
            run: self.run.clone(),
            job: Box::new(job),
        };
        let patient = async_nats::Request::new()
            .payload(written(&request).into())
            .timeout(Some(PREPARED_WITHIN));
        let answer = client.send_request(subject_of_agent(&of.id), patient).await;
        let answer = answer.ok().and_then(|answer| read(&answer.payload));
        let refused = |said: String| Err(FleetError::Agent(of.name.clone(), said));
        match answer {
            Some(Answer::Ready { clock }) => Ok(clock),
            Some(Answer::Refused { reason }) => refused(reason),
            _ => refused("it did not get ready; look at its output".to_owned()),
        }
    }
}

/// The files of a scenario, for machines that do not have them.
fn files(
    fleet: &FleetOptions,
    scenario: &Scenario,
) -> Result<Vec<(FileKind, Vec<u8>)>, FleetError> {
    let mut files = vec![(FileKind::Scenario, scenario.text().as_bytes().to_vec())];
    let folder = fleet.scenario.parent().unwrap_or(Path::new(""));
    for (kind, key) in [
        (FileKind::Accounts, "accounts.file"),
        (FileKind::Tokens, "terminals.tokens-file"),
        (FileKind::Ca, "tls.ca"),
    ] {
        let Some(name) = scenario.value_of(key) else {
            continue;
        };
        let path = folder.join(name);
        let content = std::fs::read(&path)
            .map_err(|error| FleetError::File(path.clone(), error.to_string()))?;
        if content.len() > FILE_BYTES_MAX {
            let said = format!("it has {} bytes", content.len());
            return Err(FleetError::File(path, said));
        }
        files.push((kind, content));
    }
    Ok(files)
}
