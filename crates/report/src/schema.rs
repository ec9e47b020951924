//! The JSON schemas of the reports.

use crate::{Report, SearchReport};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// The JSON schema of what `--json` writes (draft 2020-12): every field is there, and more may come in later versions.
#[must_use]
pub fn schema() -> String {
    schema_of::<Report>("A report of myriad swarm")
}

/// The same of what `find-max --json` writes.
#[must_use]
pub fn search_schema() -> String {
    schema_of::<SearchReport>("A report of myriad swarm find-max")
}

fn schema_of<T: JsonSchema>(title: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    serde_json::to_string_pretty(&schema).expect("a schema is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ClientPublishReport, Fanout, FlowReport, HeatMap, HeldReport, HttpReport, PushReport,
        Sample, SampleTimes, Series, ServerSample,
    };
    use serde_json::Value;

    /// A report with something in every place.
    fn full() -> Report {
        Report {
            echo: Some(crate::RoundTripReport::default()),
            client_publish: Some(ClientPublishReport::default()),
            session: Some(crate::SessionReport::default()),
            http: Some(HttpReport {
                held: Some(HeldReport {
                    expected_ms: Some((1.0, 2.0)),
                    ..HeldReport::default()
                }),
                ..HttpReport::default()
            }),
            stall: Some(crate::StallReport::default()),
            vanish: Some(crate::VanishReport::default()),
            flows: vec![FlowReport::default()],
            fanout: Some(Fanout::default()),
            cpu: Some(crate::CpuReport::default()),
            fleet: Some(crate::FleetReport {
                agents: vec![crate::AgentReport::default()],
            }),
            pushes: vec![PushReport::default()],
            series: Series {
                samples: vec![Sample {
                    server: Some(ServerSample::default()),
                    times: [("echo".to_owned(), SampleTimes::default())].into(),
                    ..Sample::default()
                }],
                heat: vec![HeatMap::default()],
                ..Series::default()
            },
            thresholds: vec![crate::Verdict::default()],
            ..Report::default()
        }
    }

    #[test]
    fn reports_are_as_the_schema_says() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        for report in [Report::default(), full()] {
            let report = serde_json::to_value(&report).unwrap();
            jsonschema::validate(&schema, &report).unwrap();
        }
    }

    #[test]
    fn another_shape_is_none() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let mut report = serde_json::to_value(Report::default()).unwrap();
        report["elapsed_s"] = "12 s".into();
        assert!(jsonschema::validate(&schema, &report).is_err());
        let mut report = serde_json::to_value(Report::default()).unwrap();
        report.as_object_mut().unwrap().remove("setup");
        assert!(jsonschema::validate(&schema, &report).is_err());
    }

    #[test]
    fn reports_of_searches_are_as_their_schema_says() {
        let schema: Value = serde_json::from_str(&search_schema()).unwrap();
        let search = SearchReport {
            knee: Some(crate::Knee {
                report: Box::new(full()),
                ..crate::Knee::default()
            }),
            trials: vec![crate::Trial::default()],
            ..SearchReport::default()
        };
        for report in [SearchReport::default(), search] {
            let report = serde_json::to_value(&report).unwrap();
            jsonschema::validate(&schema, &report).unwrap();
        }
        let published = include_str!("../../../docs/find-max.schema.json");
        assert!(
            published.trim_end() == search_schema(),
            "docs/find-max.schema.json is another; write it anew: myriad swarm schema --find-max > docs/find-max.schema.json"
        );
    }

    #[test]
    fn the_published_schema_is_this_one() {
        let published = include_str!("../../../docs/report.schema.json");
        assert!(
            published.trim_end() == schema(),
            "docs/report.schema.json is another; write it anew: myriad swarm schema --report > docs/report.schema.json"
        );
    }
}
