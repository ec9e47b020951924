//! A controller finds its agents, divides the crowd among them (`handing`), and has them prepare and start.

mod handing;

use super::FleetError;
use super::Nats;
use super::link::{Link, Member};
use super::messages::{
    AGENTS_MAX, Answer, Beacon, HELLO, Hello, Request, is_id, read, shown_name, shown_text,
    subject_of_agent, subject_of_run, written,
};
use super::offset::Offset;
use crate::clock::{Clock as _, RunClock};
use crate::config::{Config, Dealt};
use crate::engine::deal::Deal;
use crate::engine::shared::Shared;
use crate::interrupt::Interrupt;
use crate::random;
use crate::report::Report;
use crate::run::{RunError, run_with_agents};
use crate::scenario::Scenario;
use async_nats::{Client, Subscriber};
use futures_util::StreamExt as _;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How far ahead the crowd starts, so that every agent knows in time.
const START_AHEAD: Duration = Duration::from_millis(500);

/// How long an agent may take to say that it works for this controller. It says so again and again that it is there: who does not
/// answer is asked again.
const CLAIMED_WITHIN: Duration = Duration::from_secs(1);

/// How often it is looked at whether the run was interrupted.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// Agents that are asked at once. Most of those who say that they are there may be none.
const CLAIMS_MAX: usize = 256;

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
        run: random::secret().map_err(FleetError::Random)?,
        controller: controller_name(),
    };
    let mut config = config.clone();
    let recruited = runtime.block_on(recruiting.recruit(&mut config));
    let result = recruited.and_then(|(prepared, link)| {
        let result = run_with_agents(&config, interrupt, prepared, Arc::clone(&link));
        runtime.block_on(link.release());
        Ok(result?)
    });
    // The client may still look for its server, and look up its name. Nobody waits for that.
    runtime.shutdown_background();
    result
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
            "`reconnect.lost`",
            "write `lost = false` in [reconnect], or run it from one machine",
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

/// Why an agent cannot work for this controller now; none if it can.
fn why_not_free(hello: &Hello) -> Option<String> {
    if hello.version != env!("CARGO_PKG_VERSION") {
        let version = shown_name(&hello.version);
        return Some(format!(
            "has version {version} of myriad; install the same everywhere"
        ));
    }
    let with = hello.busy_with.as_ref()?;
    Some(format!("works for {}", shown_name(with)))
}

/// Claims of agents, which do not wait for one another: who never answers holds up nobody.
struct Claims<F, Fut> {
    wanted: usize,
    /// This controller, as agents name it.
    controller: String,
    claim: F,
    under_way: FuturesUnordered<Fut>,
    /// Ids of those under way.
    asked: BTreeSet<String>,
    claimed: Vec<Claimed>,
    /// Who was there and not free, and why.
    others: Vec<(String, String)>,
    /// Who does not want to work for this controller, and why.
    refused: Option<(String, String)>,
}

impl<F, Fut> Claims<F, Fut>
where
    F: FnMut(Hello) -> Fut,
    Fut: Future<Output = (Hello, Option<Answer>)>,
{
    fn new(wanted: u32, controller: &str, claim: F) -> Self {
        Self {
            wanted: wanted as usize,
            controller: shown_name(controller),
            claim,
            under_way: FuturesUnordered::new(),
            asked: BTreeSet::new(),
            claimed: Vec::new(),
            others: Vec::new(),
            refused: None,
        }
    }

    fn are_enough(&self) -> bool {
        self.claimed.len() >= self.wanted
    }

    /// Claims an agent that says that it is there.
    fn hear(&mut self, mut hello: Hello) {
        if !is_id(&hello.id) {
            return;
        }
        hello.name = shown_name(&hello.name);
        let is_claimed = self.claimed.iter().any(|one| one.hello.id == hello.id);
        if is_claimed || self.asked.contains(&hello.id) {
            return;
        }
        // One whose answer was late works for this controller already. Asked again, it says so.
        hello.busy_with = hello.busy_with.filter(|with| *with != self.controller);
        if let Some(why) = why_not_free(&hello) {
            self.others.retain(|(name, _)| *name != hello.name);
            if self.others.len() < AGENTS_MAX {
                self.others.push((hello.name, why));
            }
        } else if self.under_way.len() < CLAIMS_MAX {
            self.asked.insert(hello.id.clone());
            self.under_way.push((self.claim)(hello));
        }
    }

    /// Waits for what comes first: that, or the next answer to a claim.
    async fn turn<T>(&mut self, other: impl Future<Output = Option<T>>) -> Option<T> {
        tokio::select! {
            biased;
            Some((hello, answer)) = self.under_way.next() => {
                self.take(hello, answer);
                None
            }
            heard = other => heard,
        }
    }

    fn take(&mut self, hello: Hello, answer: Option<Answer>) {
        self.asked.remove(&hello.id);
        match answer {
            Some(Answer::Done) => self.claimed.push(Claimed {
                hello,
                clock: Offset::default(),
            }),
            Some(Answer::Refused { reason }) => {
                self.refused = Some((hello.name, shown_text(&reason)));
            }
            // Another controller was quicker, or it is gone.
            _ => {}
        }
    }

    /// Those that were claimed, as many as are wanted, and those beyond: a claim under way may still be granted.
    async fn finish(mut self) -> (Vec<Claimed>, Vec<Claimed>) {
        while let Some((hello, answer)) = self.under_way.next().await {
            self.take(hello, answer);
        }
        let wanted = self.wanted.min(self.claimed.len());
        let surplus = self.claimed.split_off(wanted);
        (self.claimed, surplus)
    }
}

/// Numbers agents of one name, which stand next to each other: several on one machine have its name.
fn name_apart(claimed: &mut [Claimed]) {
    for same in claimed.chunk_by_mut(|one, other| one.hello.name == other.hello.name) {
        for (one, number) in same.iter_mut().zip(1..).skip(1) {
            one.hello.name = format!("{} ({number})", one.hello.name);
        }
    }
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
        let client = self.fleet.nats.connect("myriad swarm").await?;
        let failed = |error: &dyn std::fmt::Display| FleetError::Lost(error.to_string());
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
        let prepared_all = self.prepare_all(&client, config, &mut claimed);
        if let Err(error) = self.unless_interrupted(prepared_all).await {
            link.release().await;
            return Err(error);
        }
        let at = clock.now().plus(START_AHEAD);
        let started = try_join_all(claimed.iter().map(|one| {
            let run = self.run.clone();
            let request = Request::Start { run, at };
            self.ask_to_do(&client, &one.hello, request)
        }));
        if let Err(error) = self.unless_interrupted(started).await {
            link.release().await;
            return Err(error);
        }
        let clocks = claimed.iter().map(|one| one.clock);
        link.begin(clocks.collect(), at);
        Ok((prepared, link))
    }

    /// Does something that a lost agent or server would make long, until the run is interrupted.
    async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, FleetError>>,
    ) -> Result<T, FleetError> {
        let interrupted = async {
            while !self.interrupt.is_made() {
                sleep(INTERRUPT_EVERY).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = interrupted => Err(FleetError::Interrupted),
        }
    }

    /// Claims as many agents as are wanted, as they say that they are there. Those that are busy may become free.
    async fn claim_all(
        &self,
        client: &Client,
        hellos: &mut Subscriber,
    ) -> Result<Vec<Claimed>, FleetError> {
        let begun = Instant::now();
        let claim = move |hello: Hello| self.claim(client, hello);
        let mut claims = Claims::new(self.fleet.agents, &self.controller, claim);
        let outcome = loop {
            if claims.are_enough() {
                break Ok(());
            }
            if self.interrupt.is_made() {
                break Err(FleetError::Interrupted);
            }
            if begun.elapsed() >= self.fleet.wait {
                break Err(FleetError::TooFew {
                    wanted: self.fleet.agents,
                    free: claims.claimed.len(),
                    others: std::mem::take(&mut claims.others),
                    waited: self.fleet.wait,
                });
            }
            // Agents that are claimed hear that somebody is there.
            self.hold(client).await;
            let next = hellos.next();
            let heard = timeout(Duration::from_millis(200), claims.turn(next)).await;
            let hello = heard.ok().flatten().and_then(|it| read(&it.payload));
            if let Some(hello) = hello {
                claims.hear(hello);
            }
            if let Some((name, reason)) = claims.refused.take() {
                break Err(FleetError::Agent(name, reason));
            }
        };
        let (mut claimed, mut surplus) = claims.finish().await;
        if outcome.is_err() {
            surplus.append(&mut claimed);
        }
        let released = self.release_all(client, &surplus);
        let _ = timeout(CLAIMED_WITHIN, released).await;
        outcome?;
        // In the order of their names, so that the same fleet gets the same parts.
        claimed.sort_by(|one, other| one.hello.name.cmp(&other.hello.name));
        name_apart(&mut claimed);
        Ok(claimed)
    }

    /// Asks an agent to work for this controller. No answer if it is gone.
    async fn claim(&self, client: &Client, hello: Hello) -> (Hello, Option<Answer>) {
        let request = Request::Claim {
            run: self.run.clone(),
            controller: self.controller.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let request = async_nats::Request::new()
            .payload(written(&request).into())
            .timeout(Some(CLAIMED_WITHIN));
        let answer = client.send_request(subject_of_agent(&hello.id), request);
        let answer = answer.await.ok().and_then(|it| read(&it.payload));
        (hello, answer)
    }

    /// A beacon before there is a crowd.
    async fn hold(&self, client: &Client) {
        let beacon = written(&Beacon::before_the_run());
        let subject = subject_of_run(&self.run, "beacon");
        let _ = client.publish(subject, beacon.into()).await;
    }

    async fn release_all(&self, client: &Client, claimed: &[Claimed]) {
        let released = claimed.iter().map(|one| async {
            let run = self.run.clone();
            let request = Request::Release { run };
            self.ask(client, &one.hello.id, &request).await
        });
        join_all(released).await;
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
                    return Err(FleetError::Agent(of.name.clone(), shown_text(&reason)));
                }
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
        let said = "it does not answer; look at its output".to_owned();
        Err(FleetError::Agent(of.name.clone(), said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::messages::Capacity;
    use futures_util::FutureExt as _;
    use futures_util::future::{LocalBoxFuture, pending, ready};

    fn hello(number: u32) -> Hello {
        Hello {
            id: format!("{number:08x}"),
            name: "a".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capacity: Capacity::default(),
            busy_with: None,
        }
    }

    #[test]
    fn agents_of_one_name_are_told_apart() {
        let claimed = |number| Claimed {
            hello: hello(number),
            clock: Offset::default(),
        };
        let mut all = [claimed(1), claimed(2), claimed(3)];
        all[2].hello.name = "b".to_owned();
        name_apart(&mut all);
        let names = all.iter().map(|one| one.hello.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "a (2)", "b"]);
    }

    #[test]
    fn who_never_answers_holds_up_nobody() {
        let claim = |hello: Hello| -> LocalBoxFuture<'static, (Hello, Option<Answer>)> {
            let answers = [50, 51].map(|number| format!("{number:08x}"));
            match answers.contains(&hello.id) {
                true => ready((hello, Some(Answer::Done))).boxed_local(),
                false => pending().boxed_local(),
            }
        };
        let mut claims = Claims::new(2, "c", claim);
        for number in 0..=51 {
            claims.hear(hello(number));
            claims.hear(hello(number));
        }
        assert_eq!(claims.under_way.len(), 52, "each is asked once");
        for _ in 0..2 {
            assert!(!claims.are_enough());
            let heard = claims.turn(pending::<Option<()>>()).now_or_never();
            assert_eq!(heard, Some(None), "an answer");
        }
        assert!(claims.are_enough());
        // The agents are not asked again.
        claims.hear(hello(50));
        assert_eq!(claims.under_way.len(), 50);
    }

    #[test]
    fn an_agent_whose_answer_was_late_is_asked_again() {
        let claim = |hello: Hello| ready((hello, None::<Answer>));
        let mut claims = Claims::new(1, "c", claim);
        for (with, under_way) in [(None, 1), (Some("b"), 0), (Some("c"), 1)] {
            let mut hello = hello(1);
            hello.busy_with = with.map(str::to_owned);
            claims.hear(hello);
            assert_eq!(claims.under_way.len(), under_way);
            let _ = claims.turn(pending::<Option<()>>()).now_or_never();
        }
    }

    #[test]
    fn an_agent_that_is_claimed_beyond_those_that_are_wanted_is_let_go() {
        let claim = |hello: Hello| ready((hello, Some(Answer::Done)));
        let mut claims = Claims::new(1, "c", claim);
        (0..3).for_each(|number| claims.hear(hello(number)));
        let (claimed, surplus) = claims.finish().now_or_never().expect("all have answered");
        assert_eq!((claimed.len(), surplus.len()), (1, 2));
    }

    #[test]
    fn agents_of_another_version_or_another_controller_are_not_free() {
        let mut hello = hello(1);
        assert_eq!(why_not_free(&hello), None);
        hello.busy_with = Some("b".to_owned());
        assert_eq!(why_not_free(&hello).as_deref(), Some("works for b"));
        hello.version = "0.0.1\u{1b}[2J".to_owned();
        let why = why_not_free(&hello).unwrap();
        assert!(why.starts_with("has version 0.0.1[2J of myriad"), "{why}");
    }

    /// All keys and sections of a scenario.
    fn keys() -> BTreeSet<String> {
        let schema = crate::scenario::schema();
        let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
        let sections = schema["$defs"].as_object().expect("sections").values();
        let all = sections.chain([&schema]);
        let keys = all.filter_map(|it| it["properties"].as_object());
        keys.flat_map(|it| it.keys().cloned()).collect()
    }

    #[test]
    fn the_page_names_keys_of_scenarios_where_it_says_what_is_refused() {
        let page = include_str!("../../../../docs/fleet.md");
        let (_, table) = page.split_once("These are refused").expect("the table");
        let rows = table.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|'));
        let rows: String = rows.collect();
        let named: Vec<&str> = rows.split('`').skip(1).step_by(2).collect();
        assert!(named.contains(&"lost = false"), "{named:?}");
        let keys = keys();
        for named in named {
            let key = named.split_once(" =").map_or(named, |(key, _)| key);
            assert!(keys.contains(key), "{named}");
        }
    }
}
