//! Limits of the control groups this process is in, both hierarchies: memory, cores, threads.
//!
//! A limit on any ancestor binds, so every level up to the root is read. Kernel memory of sockets is
//! charged to the group, so its memory limit stops connections like the machine's own memory does.

use super::files::{ProbeError, Tree};
use crate::machine::{Cgroup, CgroupVersion};
use std::path::{Path, PathBuf};

/// The hierarchy's way to say "no limit" is a huge number, rounded to pages: anything from 2^60 is that.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The group with the least room, or nothing when no group has a limit.
pub(super) fn tightest(proc: &Tree, mount: &Path) -> Result<Option<Cgroup>, ProbeError> {
    let mut tightest = None;
    for level in levels(proc, mount, "memory")? {
        if let Some(group) = memory_limit(&level)? {
            keep_tighter(&mut tightest, group);
        }
    }
    Ok(tightest)
}

/// The group with the least room for TCP's buffers. Only version 1 bounds them by themselves, and counts them nowhere
/// else; version 2 charges them to the group's memory.
pub(super) fn tightest_for_tcp(proc: &Tree, mount: &Path) -> Result<Option<Cgroup>, ProbeError> {
    const LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";
    const USED: &str = "memory.kmem.tcp.usage_in_bytes";
    let mut tightest = None;
    for level in levels(proc, mount, "memory")? {
        if level.version == CgroupVersion::V1
            && let Some(group) = bounded(&level, LIMIT, USED)?
        {
            keep_tighter(&mut tightest, group);
        }
    }
    Ok(tightest)
}

/// Memory charged to the innermost group with a limit, page cache included; nothing when none has one.
pub(super) fn charged_bytes(proc: &Tree, mount: &Path) -> Result<Option<u64>, ProbeError> {
    for level in levels(proc, mount, "memory")? {
        if memory_limit(&level)?.is_some() {
            return level.files.number_if_present(level.usage_file());
        }
    }
    Ok(None)
}

/// Cores that the tightest quota comes to, at least one; nothing when no group has a quota.
pub(super) fn cores(proc: &Tree, mount: &Path) -> Result<Option<usize>, ProbeError> {
    let mut least = None;
    for level in levels(proc, mount, "cpu")? {
        let text = match level.version {
            CgroupVersion::V2 => level.files.text_if_present("cpu.max")?,
            CgroupVersion::V1 => {
                let quota = level.files.text_if_present("cpu.cfs_quota_us")?;
                let period = level.files.text_if_present("cpu.cfs_period_us")?;
                quota
                    .zip(period)
                    .map(|(quota, period)| format!("{quota} {period}"))
            }
        };
        // `max`, or -1, is no quota.
        let mut words = text.iter().flat_map(|text| text.split_whitespace());
        let numbers = (words.next().map(str::parse), words.next().map(str::parse));
        if let (Some(Ok(quota)), Some(Ok(period))) = numbers {
            let (quota, period): (u64, u64) = (quota, period);
            let cores = quota.checked_div(period).unwrap_or(u64::MAX).max(1);
            let cores = usize::try_from(cores).unwrap_or(usize::MAX);
            least = Some(least.map_or(cores, |known: usize| known.min(cores)));
        }
    }
    Ok(least)
}

/// The tightest limit on threads, and how many there are of it; nothing when no group has one.
pub(super) fn threads(proc: &Tree, mount: &Path) -> Result<Option<[u64; 2]>, ProbeError> {
    let mut tightest: Option<[u64; 2]> = None;
    for level in levels(proc, mount, "pids")? {
        let most = level.files.text_if_present("pids.max")?;
        let Some(most) = most.and_then(|text| text.trim().parse::<u64>().ok()) else {
            continue;
        };
        let now = level.files.number_if_present("pids.current")?.unwrap_or(0);
        if tightest
            .is_none_or(|[known, used]| most.saturating_sub(now) < known.saturating_sub(used))
        {
            tightest = Some([most, now]);
        }
    }
    Ok(tightest)
}

/// One group of the way from this process's own to the root.
struct Level {
    version: CgroupVersion,
    path: PathBuf,
    files: Tree,
}

impl Level {
    /// The file with all that is charged, page cache included.
    fn usage_file(&self) -> &'static str {
        match self.version {
            CgroupVersion::V1 => "memory.usage_in_bytes",
            CgroupVersion::V2 => "memory.current",
        }
    }

    /// Each file with a limit that sockets meet, and the one with the usage that it bounds. Past `memory.high` the group
    /// is slowed down until hardly anything goes on; sockets are kernel memory, which version 1 can bound by itself.
    fn memory_files(&self) -> [(&'static str, &'static str); 2] {
        match self.version {
            CgroupVersion::V1 => [
                ("memory.limit_in_bytes", self.usage_file()),
                ("memory.kmem.limit_in_bytes", "memory.kmem.usage_in_bytes"),
            ],
            CgroupVersion::V2 => [
                ("memory.max", self.usage_file()),
                ("memory.high", self.usage_file()),
            ],
        }
    }
}

/// Groups that could limit what the controller controls, the innermost first.
///
/// A container often sees its own group mounted as the root while `/proc/self/cgroup` tells the host's path:
/// the ancestors end at the root, so that group is read too.
fn levels(proc: &Tree, mount: &Path, controller: &str) -> Result<Vec<Level>, ProbeError> {
    let Some(membership) = proc.text_if_present("self/cgroup")? else {
        return Ok(Vec::new());
    };
    let mut levels = Vec::new();
    for line in membership.lines() {
        // `id:controllers:path`; version 2 has id 0 and no controllers.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (version, root) = if controllers.is_empty() {
            // On a machine with both, version 2 is mounted beside the controllers of version 1.
            let unified = mount.join("unified");
            let root = if unified.is_dir() {
                unified
            } else {
                mount.to_path_buf()
            };
            (CgroupVersion::V2, root)
        } else if controllers.split(',').any(|name| name == controller) {
            (CgroupVersion::V1, mount.join(controller))
        } else {
            continue;
        };
        for level in Path::new(path).ancestors() {
            let inside = level.strip_prefix("/").unwrap_or(level);
            levels.push(Level {
                version,
                path: level.to_path_buf(),
                files: Tree::new(root.join(inside)),
            });
        }
    }
    Ok(levels)
}

/// The tightest limit of one level; nothing where the level has none or is not visible.
fn memory_limit(level: &Level) -> Result<Option<Cgroup>, ProbeError> {
    let mut tightest = None;
    for (limit_file, used_file) in level.memory_files() {
        let Some(mut group) = bounded(level, limit_file, used_file)? else {
            continue;
        };
        if used_file == level.usage_file() {
            let droppable = droppable_cache(&level.files)?;
            group.used_bytes = group.used_bytes.saturating_sub(droppable);
        }
        keep_tighter(&mut tightest, group);
    }
    Ok(tightest)
}

/// What a file of a level bounds, and how much of that is used; nothing where there is no such file or limit.
fn bounded(level: &Level, limit_file: &str, used_file: &str) -> Result<Option<Cgroup>, ProbeError> {
    let Some(limit) = level.files.text_if_present(limit_file)? else {
        return Ok(None);
    };
    if limit.trim() == "max" {
        return Ok(None);
    }
    let Ok(limit_bytes) = limit.trim().parse::<u64>() else {
        return Err(level
            .files
            .malformed(limit_file, "a number of bytes or 'max'", &limit));
    };
    if limit_bytes >= UNLIMITED_BYTES {
        return Ok(None);
    }
    Ok(Some(Cgroup {
        version: level.version,
        path: level.path.display().to_string(),
        file: limit_file.to_owned(),
        limit_bytes,
        used_bytes: level.files.number(used_file)?,
    }))
}

fn keep_tighter(tightest: &mut Option<Cgroup>, group: Cgroup) {
    let is_tighter = tightest
        .as_ref()
        .is_none_or(|known| group.available_bytes() < known.available_bytes());
    if is_tighter {
        *tightest = Some(group);
    }
}

/// Page cache the kernel would give up before it refuses memory: the group's file lists. The names with
/// `total_` (version 1) include the children's; version 2 has only names that do.
fn droppable_cache(files: &Tree) -> Result<u64, ProbeError> {
    let text = files.text_if_present("memory.stat")?.unwrap_or_default();
    let value = |name: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .parse::<u64>()
                .ok()
        })
    };
    let list = |name: &str| {
        value(&format!("total_{name}"))
            .or_else(|| value(name))
            .unwrap_or(0)
    };
    Ok(list("inactive_file").saturating_add(list("active_file")))
}
