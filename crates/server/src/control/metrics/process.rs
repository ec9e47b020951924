//! Figures of the process.

use super::{Description, NoLabels, describe};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::thread::Pid;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The process, under the standard names without our prefix.
#[derive(Debug)]
pub(super) struct OwnProcess {
    /// Threads with descriptor tables of their own; set once all run.
    pub(super) tables: Arc<OnceLock<Vec<Pid>>>,
}

impl Collector for OwnProcess {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        // Without /proc there is nothing to show, and the rest is still worth showing.
        let Ok(process) =
            myriad_usage::OwnProcess::look(self.tables.get().map_or(&[], Vec::as_slice))
        else {
            return Ok(());
        };
        let cpu = ("process_cpu", Some(Unit::Seconds), "User and system time");
        describe(&mut encoder, &cpu, MetricType::Counter)?
            .encode_counter::<NoLabels, _, u64>(&process.cpu_s, None)?;
        let gauges: [(Description, u64); 4] = [
            (
                (
                    "process_resident_memory",
                    Some(Unit::Bytes),
                    "Resident memory",
                ),
                process.resident_bytes,
            ),
            (
                (
                    "process_open_fds",
                    None,
                    "Descriptors open in all tables of the process",
                ),
                process.descriptors,
            ),
            (
                ("process_max_fds", None, "Slots of one descriptor table"),
                process.descriptors_max,
            ),
            (("process_threads", None, "Threads"), process.threads),
        ];
        for (description, value) in gauges {
            describe(&mut encoder, &description, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let started = (
            "process_start_time",
            Some(Unit::Seconds),
            "When the process started, in seconds since 1970",
        );
        describe(&mut encoder, &started, MetricType::Gauge)?.encode_gauge(&process.started_at_s)
    }
}
