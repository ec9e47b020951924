//! What each agent gets: its part of the crowd, and the files of the scenario.

use super::{Claimed, Recruiting};
use crate::config::Config;
use crate::engine::deal::Slice;
use crate::files::read_bounded;
use crate::fleet::FleetError;
use crate::fleet::division::{Bound, Indivisible, bound, divide};
use crate::fleet::messages::{
    Answer, FILE_BYTES_MAX, FILE_PART_BYTES, FileKind, Hello, Job, Request, read, shown_text,
    subject_of_agent, written,
};
use crate::fleet::offset::Offset;
use crate::scenario::Scenario;
use async_nats::Client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// How long an agent may take to read the scenario and to compare clocks.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

impl Recruiting<'_> {
    /// Divides the crowd by what the agents allow.
    pub(super) fn divide(
        &self,
        config: &Config,
        claimed: &[Claimed],
    ) -> Result<Vec<Slice>, FleetError> {
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
    pub(super) async fn prepare_all(
        &self,
        client: &Client,
        config: &Config,
        claimed: &mut [Claimed],
    ) -> Result<(), FleetError> {
        let files = files(self.scenario)?;
        let dealt = config.dealt.as_ref().expect("it was dealt");
        let prepared = claimed.iter().enumerate().map(|(own, one)| {
            let job = Job {
                sets: self.scenario.sets(),
                connections: config.connections,
                duration: config.duration,
                driver: config.driver.map(|driver| driver.name().to_owned()),
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
            Some(Answer::Refused { reason }) => refused(shown_text(&reason)),
            _ => refused("it did not get ready; look at its output".to_owned()),
        }
    }
}

/// The files of a scenario, for machines that do not have them.
fn files(scenario: &Scenario) -> Result<Vec<(FileKind, Vec<u8>)>, FleetError> {
    let mut files = vec![(FileKind::Scenario, scenario.text().as_bytes().to_vec())];
    let folder = scenario.path().parent().unwrap_or(Path::new(""));
    for (kind, key) in [
        (FileKind::Accounts, "accounts.file"),
        (FileKind::Tokens, "terminals.tokens-file"),
        (FileKind::Ca, "tls.ca"),
    ] {
        let Some(name) = scenario.value_of(key) else {
            continue;
        };
        let path = folder.join(name);
        let content = read_bounded(&path, FILE_BYTES_MAX as u64)
            .map_err(|error| FleetError::File(path.clone(), error.to_string()))?
            .ok_or_else(|| FleetError::File(path, "it is larger".to_owned()))?;
        files.push((kind, content));
    }
    Ok(files)
}
