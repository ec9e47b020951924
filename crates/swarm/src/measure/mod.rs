//! Measuring: publications, sequences, rates, and the crowd's own use of the machine.

pub(crate) mod buckets;
pub(crate) mod collector;
pub(crate) mod comeback_metric;
pub(crate) mod cpu;
pub(crate) mod deliveries;
pub(crate) mod fanout;
pub(crate) mod figures;
pub(crate) mod flow_metric;
pub(crate) mod http_metric;
pub(crate) mod process;
pub(crate) mod push;
pub(crate) mod quantile;
pub(crate) mod rates;
pub(crate) mod round_trip;
pub(crate) mod sequence;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod threshold;
pub(crate) mod unwell_metric;
