//! What a run did, in a few words: its load, and what happened to its clients.

use crate::report::Report;
use crate::report::comeback::storm_name;
use crate::report::reporting::Language;
use crate::report::text::{bytes, rate, time};
use myriad_report::{FlowReport, RoundTripReport};

/// Each part of the load, without a full stop.
pub(super) fn parts(report: &Report, language: Language) -> Vec<String> {
    let settings = &report.settings;
    let size = |bytes_count: Option<usize>| {
        bytes_count.map_or_else(String::new, |count| {
            format!(" ({})", bytes(crate::report::float(count as u64)))
        })
    };
    let pushes = settings.publish_every_s.map(|every| {
        let every = time(every * 1000.0);
        let name = match language {
            Language::English => format!("pushes every {every}"),
            Language::Chinese => format!("每 {every} 推送一次"),
        };
        name + &size(settings.payload_bytes)
    });
    let published = report.client_publish.as_ref().map(|it| &it.replies);
    let trips = [
        (
            language.of("echoes", "回显"),
            report.echo.as_ref(),
            settings.echo_bytes,
        ),
        (
            language.of("publications of clients", "客户端发布"),
            published,
            settings.client_publish_bytes,
        ),
        (
            language.of("requests", "请求"),
            report.request.as_ref(),
            None,
        ),
    ];
    let trip = |(name, trips, bytes): (&str, Option<&RoundTripReport>, _)| {
        Some(format!("{name} {}{}", rate(trips?.rate_per_s), size(bytes)))
    };
    pushes
        .into_iter()
        .chain(trips.into_iter().filter_map(trip))
        .chain(report.flows.iter().map(flow))
        .chain(happenings(report, language))
        .collect()
}

fn flow(flow: &FlowReport) -> String {
    let pace = flow.rate_per_s.map(rate).or_else(|| flow.think.clone());
    format!("{} {}", flow.name, pace.unwrap_or_default())
        .trim_end()
        .to_owned()
}

/// What happened to clients, beside the load.
fn happenings(report: &Report, language: Language) -> Vec<String> {
    let storms = report.comeback.iter().flat_map(|it| &it.storms);
    let mut happenings: Vec<String> = storms.map(|it| storm_name(it, language)).collect();
    if report.stall.is_some() {
        happenings.push(language.of("clients stall", "客户端停止读取").to_owned());
    }
    if report.vanish.is_some() {
        happenings.push(language.of("clients vanish", "客户端无声消失").to_owned());
    }
    happenings
}
