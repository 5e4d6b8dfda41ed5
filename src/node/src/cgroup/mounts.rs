//! Which control groups are mounted where, from the text of /proc/PID/mountinfo (proc_pid_mountinfo(5)).

use super::path::Version;
use std::path::{Path, PathBuf};

/// Controllers that Slurm's v1 plugin makes groups for [src/plugins/cgroup/v1, 22.05].
const SLURMS: [&str; 6] = ["freezer", "devices", "cpuset", "memory", "cpuacct", "cpu"];

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub version: Version,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Which of its groups is visible there as the top, `/` for all.
    pub root: String,
    /// Those of its controllers that Slurm uses; none for v2.
    pub controllers: Vec<String>,
}

/// The hierarchies at `cgroup_root` or right below it. Of several mounts at one point the last one is visible.
pub(super) fn mounts(mountinfo: &str, cgroup_root: &Path) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for mount in mountinfo.lines().filter_map(parse) {
        if mount.point == cgroup_root || mount.point.parent() == Some(cgroup_root) {
            all.retain(|earlier| earlier.point != mount.point);
            all.push(mount);
        }
    }
    all
}

/// `36 35 98:0 ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS`; `None` where it is nothing that Slurm uses.
fn parse(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (unescape(place.next()?)?, unescape(place.next()?)?);
    let mut what = what.split(' ');
    let (kind, options) = (what.next()?, what.nth(1)?);
    let version = match kind {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let used = |option: &&str| version == Version::V1 && SLURMS.contains(option);
    let controllers: Vec<String> = options.split(',').filter(used).map(str::to_owned).collect();
    let is_used = version == Version::V2 || !controllers.is_empty();
    is_used.then(|| Mount { version, point: point.into(), root, controllers })
}

/// Blanks and the like stand as `\040`.
fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3)?;
        bytes.push(u8::from_str_radix(digits, 8).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visible_mount_of_each_hierarchy_is_found() {
        let text = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
                    31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
                    32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                    33 30 0:29 /.. /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    34 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    35 30 0:30 /a\\040b /sys/fs/cgroup/freezer rw - cgroup none rw,freezer\n\
                    36 30 0:30 / /mnt/freezer rw - cgroup none rw,freezer\n\
                    37 30 0:30 / /sys/fs/cgroup/freezer/x rw - cgroup none rw,freezer\n\
                    broken\n\
                    38 30 0:31 / /sys/fs/cgroup/x\\9 rw - cgroup none rw,freezer\n";
        let found = mounts(text, Path::new("/sys/fs/cgroup"));
        let short = |mount: &Mount| {
            format!("{} {} {}", mount.point.display(), mount.root, mount.controllers.join(","))
        };
        assert_eq!(
            found.iter().map(short).collect::<Vec<_>>(),
            [
                "/sys/fs/cgroup/unified / ",
                "/sys/fs/cgroup/cpu,cpuacct / cpu,cpuacct",
                "/sys/fs/cgroup/freezer /a b freezer"
            ]
        );
    }
}
