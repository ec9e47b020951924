//! The program's version and commit, and how the last reload ended.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::time::{SystemTime, UNIX_EPOCH};

/// How the last reading of the configuration ended: at the start, it was good. All clones say the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadOutcome {
    succeeded: Gauge,
    succeeded_at_s: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    commit: &'static str,
}

impl ReloadOutcome {
    pub(super) fn registered(registry: &mut Registry, commit: &'static str) -> Self {
        let build = Family::<BuildLabels, Gauge>::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version, commit }).set(1);
        registry.register(
            "build_info",
            "1, with the version and the commit as labels",
            build,
        );
        let outcome = Self::default();
        outcome.note(true);
        registry.register(
            "config_last_reload_successful",
            "1 if the configuration was in force that was read last, 0 if it had a mistake",
            outcome.succeeded.clone(),
        );
        registry.register_with_unit(
            "config_last_reload_success_timestamp",
            "When a configuration last came in force, since 1970",
            Unit::Seconds,
            outcome.succeeded_at_s.clone(),
        );
        outcome
    }

    /// A configuration was read. Is it in force?
    pub(crate) fn note(&self, is_in_force: bool) {
        self.succeeded.set(is_in_force.into());
        if is_in_force {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since_1970.map_or(0, |since| since.as_secs());
            self.succeeded_at_s
                .set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }
}
