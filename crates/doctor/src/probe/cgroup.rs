//! Memory limits of the control groups this process is in, both hierarchies.
//!
//! A limit on any ancestor binds, so every level up to the root is read. Kernel memory of sockets is
//! charged to the group, so this limit stops connections like the machine's own memory does.

use super::files::{ProbeError, Tree};
use crate::machine::{Cgroup, CgroupVersion};
use std::path::{Path, PathBuf};

/// The hierarchy's way to say "no limit" is a huge number, rounded to pages: anything from 2^60 is that.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The group with the least room, or nothing when no group has a limit.
pub(super) fn tightest(proc: &Tree, mount: &Path) -> Result<Option<Cgroup>, ProbeError> {
    let Some(membership) = proc.text_if_present("self/cgroup")? else {
        return Ok(None);
    };
    let mut tightest: Option<Cgroup> = None;
    for line in membership.lines() {
        let Some((hierarchy, path)) = Hierarchy::of(line, mount) else {
            continue;
        };
        for level in Path::new(path).ancestors() {
            let Some(group) = hierarchy.group(level)? else {
                continue;
            };
            if tightest
                .as_ref()
                .is_none_or(|known| group.available_bytes() < known.available_bytes())
            {
                tightest = Some(group);
            }
        }
    }
    Ok(tightest)
}

struct Hierarchy {
    version: CgroupVersion,
    root: PathBuf,
}

impl Hierarchy {
    /// A line of `/proc/self/cgroup` is `id:controllers:path`; version 2 has id 0 and no controllers.
    fn of<'a>(line: &'a str, mount: &Path) -> Option<(Self, &'a str)> {
        let mut fields = line.splitn(3, ':');
        let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if controllers.is_empty() {
            // On a machine with both, version 2 is mounted beside the controllers of version 1.
            let unified = mount.join("unified");
            let root = if unified.is_dir() {
                unified
            } else {
                mount.to_path_buf()
            };
            return Some((
                Self {
                    version: CgroupVersion::V2,
                    root,
                },
                path,
            ));
        }
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then(|| {
            (
                Self {
                    version: CgroupVersion::V1,
                    root: mount.join("memory"),
                },
                path,
            )
        })
    }

    /// The limit of one level; nothing where the level has none or is not visible. A container often sees
    /// its own group mounted as the root while `/proc/self/cgroup` tells the host's path: the ancestors end
    /// at the root, so that group is read too.
    fn group(&self, level: &Path) -> Result<Option<Cgroup>, ProbeError> {
        let (limit_file, used_file) = match self.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let inside = level.strip_prefix("/").unwrap_or(level);
        let files = Tree::new(self.root.join(inside));
        let Some(limit) = files.text_if_present(limit_file)? else {
            return Ok(None);
        };
        if limit.trim() == "max" {
            return Ok(None);
        }
        let Ok(limit_bytes) = limit.trim().parse::<u64>() else {
            return Err(files.malformed(limit_file, "a number of bytes or 'max'", &limit));
        };
        if limit_bytes >= UNLIMITED_BYTES {
            return Ok(None);
        }
        let used = files.number(used_file)?;
        let cache = droppable_cache(&files)?;
        Ok(Some(Cgroup {
            version: self.version,
            path: level.display().to_string(),
            limit_bytes,
            used_bytes: used.saturating_sub(cache),
        }))
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
    Ok(list("inactive_file") + list("active_file"))
}
