//! How many shards, and whose descriptor table each uses: decided once, from plain numbers.

use crate::config::DriverChoice;
use crate::error::ServerError;
use myriad_doctor::names::limit;
use myriad_doctor::refusal;
use myriad_doctor::tables::{self, REFUSAL_SLOTS, epoll_tables_needed, own_descriptors};
use myriad_reactor::{Driver, DriverUnavailable};
use myriad_shard::Mesh;
use myriad_units::{count, counted};

/// What the plan depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) connections: u64,
    /// Shards asked for by the operator.
    pub(crate) shards: Option<usize>,
    pub(crate) cores: usize,
    /// Slots of one descriptor table, RLIMIT_NOFILE.
    pub(crate) table: usize,
}

/// Whose descriptor table a shard's sockets are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// The process's. Under io_uring only what is handed over is in it: sockets are direct descriptors.
    Shared,
    /// Each shard has its own.
    PerShard,
}

/// What will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) driver: Driver,
    pub(crate) shards: usize,
    pub(crate) tables: Tables,
    /// Sockets each shard's reactor must be able to hold, those answered 503 among them.
    pub(crate) sockets_per_shard: usize,
    /// Connections that the control plane may hold in the process's own table, those that leave and those it refuses among them.
    pub(crate) control_connections: usize,
}

// The machine's budget counts with as many shards.
const _: () = assert!(tables::EPOLL_TABLES_MAX == Mesh::SHARDS_MAX);
/// Connections that the control plane may hold where the process's own table has room for them.
pub(crate) const CONTROL_CONNECTIONS_MAX: usize = 1024;
/// With fewer there would be no room for publishers beside health and metrics.
const CONTROL_CONNECTIONS_MIN: u64 = 64;
/// Descriptors that a shard's own ring and its two listeners take from the process's table. Sockets of clients take none.
const OF_RING_SHARD: u64 = 3;

/// Plans for the driver.
///
/// # Errors
/// Not even the most tables a process may have hold the connections.
pub(crate) fn plan(driver: Driver, wanted: Wanted) -> Result<Plan, ServerError> {
    match driver {
        Driver::IoUring => plan_io_uring(wanted),
        Driver::Epoll => plan_epoll(wanted),
    }
}

/// One shard per core. Each may hold everything: rings and their tables are made as they fill, so that room costs
/// nothing until it is used, and an uneven spread needs no allowance.
///
/// # Errors
/// The process's table has no room for the control plane.
fn plan_io_uring(wanted: Wanted) -> Result<Plan, ServerError> {
    let shards = wanted
        .shards
        .unwrap_or(wanted.cores)
        .clamp(1, Mesh::SHARDS_MAX);
    let table = wanted.table as u64;
    let own = own_descriptors(shards) + OF_RING_SHARD * shards as u64;
    let left = table.saturating_sub(own);
    if left < CONTROL_CONNECTIONS_MIN {
        return Err(too_small_for_control(wanted, own));
    }
    // Further rings take descriptors as they are made. A server that may hold a million connections hardly ever does, so they get
    // half of what is left at most.
    let rings = wanted.connections / table.min(tables::RING_SLOTS_MAX);
    let control = left.saturating_sub(rings).max(left / 2);
    Ok(Plan {
        driver: Driver::IoUring,
        shards,
        tables: Tables::Shared,
        sockets_per_shard: to_usize(wanted.connections + REFUSAL_SLOTS),
        control_connections: to_usize(control).min(CONTROL_CONNECTIONS_MAX),
    })
}

fn plan_epoll(wanted: Wanted) -> Result<Plan, ServerError> {
    let shards = wanted
        .shards
        .unwrap_or(wanted.cores)
        .clamp(1, Mesh::SHARDS_MAX);
    let of_process =
        CONTROL_CONNECTIONS_MAX as u64 + own_descriptors(shards) + REFUSAL_SLOTS * shards as u64;
    let table = wanted.table as u64;
    if wanted.connections + of_process <= table {
        return Ok(Plan {
            driver: Driver::Epoll,
            shards,
            tables: Tables::Shared,
            sockets_per_shard: to_usize(wanted.connections + REFUSAL_SLOTS),
            control_connections: CONTROL_CONNECTIONS_MAX,
        });
    }
    let shards = epoll_tables_needed(wanted.connections, table)
        .ok_or_else(|| too_many(wanted))?
        .max(shards);
    // No connection of a shard is in the process's own table then.
    let left = table.saturating_sub(own_descriptors(shards));
    if left < CONTROL_CONNECTIONS_MIN {
        return Err(too_small_for_control(wanted, own_descriptors(shards)));
    }
    Ok(Plan {
        driver: Driver::Epoll,
        shards,
        tables: Tables::PerShard,
        sockets_per_shard: to_usize(left),
        control_connections: to_usize(left).min(CONTROL_CONNECTIONS_MAX),
    })
}

fn too_small_for_control(wanted: Wanted, own: u64) -> ServerError {
    ServerError::Descriptors {
        why: format!(
            "RLIMIT_NOFILE is {}, and too few for the server: its threads take {}, and the HTTP API, health and metrics need {} more. Raise \
             the limit (ulimit -Hn, LimitNOFILE= in a systemd unit){}",
            counted(wanted.table as u64, "descriptor"),
            count(own),
            count(CONTROL_CONNECTIONS_MIN),
            match wanted.shards {
                Some(shards) if shards > 1 => ", or choose fewer --shards.",
                _ => ".",
            }
        ),
    }
}

fn too_many(wanted: Wanted) -> ServerError {
    let table = wanted.table as u64;
    let evidence = format!(
        "hard RLIMIT_NOFILE bounds one table, here {}, and the epoll driver has up to {} of them",
        count(table),
        Mesh::SHARDS_MAX
    );
    ServerError::Descriptors {
        why: refusal(
            limit::TABLES,
            tables::epoll_connections_max(table),
            wanted.connections,
            &evidence,
            "Raise the limit (ulimit -Hn, LimitNOFILE= in a systemd unit), or choose fewer --max-connections.",
        ),
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Each shard starts with a ring. The probe makes one, so that a bound on locked memory of two does not show in it.
pub(crate) fn enough_rings(rings_max: Option<u64>, shards: usize) -> Result<(), DriverUnavailable> {
    match rings_max {
        Some(rings) if rings < shards as u64 => Err(DriverUnavailable(format!(
            "locked memory (RLIMIT_MEMLOCK) holds {}, and each of {} needs one; raise it \
             (ulimit -l, LimitMEMLOCK= in a systemd unit)",
            counted(rings, "ring"),
            counted(shards as u64, "shard")
        ))),
        _ => Ok(()),
    }
}

/// Chooses the driver. `probe` really tries io_uring, and is called only when the answer matters.
///
/// # Errors
/// io_uring was asked for by name and does not work.
pub(crate) fn choose_driver(
    choice: DriverChoice,
    probe: impl FnOnce() -> Result<(), DriverUnavailable>,
) -> Result<Driver, ServerError> {
    match choice {
        DriverChoice::Epoll => Ok(Driver::Epoll),
        DriverChoice::IoUring => {
            probe().map_err(|unavailable| ServerError::Driver {
                reason: unavailable.0,
            })?;
            Ok(Driver::IoUring)
        }
        DriverChoice::Auto => Ok(match probe() {
            Ok(()) => Driver::IoUring,
            Err(unavailable) => {
                tracing::info!(
                    "using epoll, because io_uring cannot be used here: {}",
                    unavailable.0
                );
                Driver::Epoll
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_epoll_where_locked_memory_has_no_ring_for_every_shard() {
        let choose = |choice, rings| choose_driver(choice, || enough_rings(rings, 3));
        let auto = DriverChoice::Auto;
        assert_eq!(choose(auto, Some(2)).unwrap(), Driver::Epoll);
        assert_eq!(choose(auto, Some(3)).unwrap(), Driver::IoUring);
        assert_eq!(choose(auto, None).unwrap(), Driver::IoUring);
        let error = choose(DriverChoice::IoUring, Some(2)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("holds 2 rings") && error.contains("ulimit -l"),
            "{error}"
        );
    }

    fn wanted(connections: u64, table: usize) -> Wanted {
        Wanted {
            connections,
            shards: None,
            cores: 2,
            table,
        }
    }

    #[test]
    fn one_table_serves_all_cores_while_it_is_large_enough() {
        let plan = plan(Driver::Epoll, wanted(100_000, 1 << 20)).unwrap();
        assert_eq!((plan.shards, plan.tables), (2, Tables::Shared));
        assert!(plan.sockets_per_shard > 100_000);
    }

    #[test]
    fn a_million_connections_pass_a_limit_of_twenty_thousand() {
        let plan = plan(Driver::Epoll, wanted(1_000_000, 20_000)).unwrap();
        assert_eq!(plan.tables, Tables::PerShard);
        // 51 tables would hold the mean, but not four standard deviations of 137 beside what is no connection.
        assert!((52..=54).contains(&plan.shards), "{plan:?}");
        // 20,000 in the mean of 50, and the four standard deviations.
        assert!(plan.sockets_per_shard as u64 >= 1_000_000 / plan.shards as u64 + 550);
        assert!(plan.sockets_per_shard < 20_000);
    }

    #[test]
    fn every_table_keeps_room_beside_the_fullest_share() {
        for connections in [20_000, 60_000, 123_456, 5_000_000] {
            for table in [4_096, 20_000, 65_536, 1 << 20] {
                let Ok(plan) = plan(Driver::Epoll, wanted(connections, table)) else {
                    continue;
                };
                let own = own_descriptors(plan.shards);
                match plan.tables {
                    Tables::Shared => {
                        assert!(connections + CONTROL_CONNECTIONS_MAX as u64 + own <= table as u64)
                    }
                    Tables::PerShard => {
                        let mean = connections.div_ceil(plan.shards as u64);
                        assert!(
                            mean + own + REFUSAL_SLOTS < table as u64,
                            "{connections} {table} {plan:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        let error = plan(Driver::Epoll, wanted(1_000_000, 1_024)).unwrap_err();
        let fits = tables::epoll_connections_max(1_024);
        let words = format!(
            "Descriptor tables allow {} of the 1,000,000 wanted: ",
            count(fits)
        );
        assert!(error.to_string().starts_with(&words), "{error}");
        assert!(fits == 0 || epoll_tables_needed(fits, 1_024).is_some());
        assert!(plan(Driver::Epoll, wanted(1_000, 300)).is_err());
    }

    #[test]
    fn io_uring_runs_one_shard_per_core_whatever_the_limit() {
        let plan = plan(Driver::IoUring, wanted(1_000_000, 20_000)).unwrap();
        assert_eq!((plan.shards, plan.tables), (2, Tables::Shared));
        assert!(plan.sockets_per_shard >= 1_000_000);
    }

    #[test]
    fn the_control_plane_has_what_descriptors_are_left() {
        let control = |driver, connections, table| {
            let planned = plan(driver, wanted(connections, table)).unwrap();
            planned.control_connections
        };
        for driver in [Driver::IoUring, Driver::Epoll] {
            assert_eq!(control(driver, 100, 20_000), CONTROL_CONNECTIONS_MAX);
            assert_eq!(control(driver, 1_000_000, 1 << 20), CONTROL_CONNECTIONS_MAX);
        }
        let own = to_usize(own_descriptors(2));
        assert_eq!(control(Driver::IoUring, 100, 200), 200 - own - 6);
        assert_eq!(control(Driver::Epoll, 100, 512), 512 - own);
        // Rings for a million connections take as many descriptors as there are.
        let left = 1_024 - own - 6;
        assert_eq!(control(Driver::IoUring, 1_000_000, 1_024), left / 2);
        assert_eq!(control(Driver::IoUring, 10_240, 1_024), left - 10);
        let error = plan(Driver::IoUring, wanted(100, own + 69)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("RLIMIT_NOFILE is 139 descriptors, and too few"),
            "{error}"
        );
        assert!(plan(Driver::IoUring, wanted(100, own + 70)).is_ok());
    }

    #[test]
    fn a_forced_driver_fails_and_a_chosen_one_falls_back() {
        let missing = || Err(DriverUnavailable("Linux 5.4 is older than 6.8".into()));
        assert_eq!(
            choose_driver(DriverChoice::Auto, missing).unwrap(),
            Driver::Epoll
        );
        assert_eq!(
            choose_driver(DriverChoice::Auto, || Ok(())).unwrap(),
            Driver::IoUring
        );
        assert_eq!(
            choose_driver(DriverChoice::Epoll, || unreachable!()).unwrap(),
            Driver::Epoll
        );
        let error = choose_driver(DriverChoice::IoUring, missing)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Linux 5.4 is older than 6.8") && error.contains("--driver epoll"),
            "{error}"
        );
    }
}
