//! What both ends used of the processors for each message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What both ends used of the processors, and for how many messages, from the end of connecting to the end of measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuReport {
    /// Seconds from the end of connecting to the end of measuring.
    pub span_s: f64,
    /// Messages that clients received in this time; of users of an HTTP API answers.
    pub messages: u64,
    /// Processor seconds that the generator used in this time: the crowd, and what publishes and asks beside it.
    pub generator_cpu_s: f64,
    /// The same of the server's process and its children; absent without `--server-pid`, where it could not be read, and where it fell.
    pub server_cpu_s: Option<f64>,
    /// Microseconds of the generator for each of these messages, which it received; absent if there were none.
    pub generator_cpu_us_per_message: Option<f64>,
    /// Microseconds of the server for each of these messages, which it sent; absent if there were none.
    pub server_cpu_us_per_message: Option<f64>,
}
