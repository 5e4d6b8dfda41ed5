//! Which of NVIDIA's devices a job may use, or has open.
//!
//! What a job may use cannot be read on the usual set-ups: v2 filters by an eBPF program, and in v1 the kernel does not
//! list what was denied to a group that is allowed everything else (security/device_cgroup.c, devcgroup_seq_show), which
//! is how Slurm does it: `a *:* rwm` at every level of a job without a GPU [recorded with 22.05.8]. What its processes
//! have open can be read, and is a part of what they may use.

use super::path::{Version, number};
use super::tree::JobFolder;
use super::{Hierarchies, Job, JobProcess, Owner};
use crate::files::{entries, if_there};
use crate::process::stat::threads;
use crate::{EdgeError, files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A device of NVIDIA's that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// /dev/nvidiaN.
    Gpu {
        /// N.
        minor: u32,
    },
    /// The right to use a GPU instance (MIG).
    GpuInstance {
        /// The minor of its GPU.
        gpu_minor: u32,
        /// Its id.
        gi: u32,
    },
    /// The right to use a compute instance (MIG).
    ComputeInstance {
        /// The minor of its GPU.
        gpu_minor: u32,
        /// The id of its GPU instance.
        gi: u32,
        /// Its own id in that.
        ci: u32,
    },
}

/// How a list of devices came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// The job may use these and no others.
    Allowed,
    /// The job's processes have these open; it may be allowed more.
    Open,
    /// The job has no process that could have one open, and its limits cannot be read.
    Unknown,
}

/// The devices of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDevices {
    /// Which.
    pub devices: BTreeSet<Device>,
    /// Why these.
    pub quality: Quality,
}

/// NVIDIA's major number (Documentation/admin-guide/devices.txt).
const NVIDIA_MAJOR: u32 = 195;
/// 254 is nvidia-modeset, 255 nvidiactl (nvidia-modprobe, nvidia-modprobe-utils.h).
const MAX_GPU_MINOR: u32 = 253;
/// 254 GPUs, each with its instances, a few lines each.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

impl Hierarchies {
    /// The devices of a job: of its control group if that lists them, else what its user's processes have open. `None`
    /// where the job has no control group here.
    ///
    /// # Errors
    /// Something cannot be read, or nobody can tell whose it is.
    pub fn devices_of(&self, job: &Job) -> Result<Option<JobDevices>, EdgeError> {
        let folders = self.folders_of(job)?;
        if let Some(devices) = self.allowed(&folders)? {
            return Ok(Some(JobDevices { devices, quality: Quality::Allowed }));
        }
        let Some(processes) = self.processes_of(job)? else { return Ok(None) };
        let mut devices = BTreeSet::new();
        let mut quality = Quality::Unknown;
        for process in processes.iter().filter(|process| process.owner == Owner::User) {
            let open = self.open_devices(process.pid)?;
            // Its pid may have passed to somebody else's process meanwhile.
            let is_same = |now: &JobProcess| {
                now.start_ticks == process.start_ticks && now.place.job == process.place.job
            };
            if self.process(process.pid)?.as_ref().is_some_and(is_same) {
                quality = Quality::Open;
                devices.extend(open);
            }
        }
        Ok(Some(JobDevices { devices, quality }))
    }

    /// The devices that a process has open, whoever it belongs to; none where it has ended.
    ///
    /// # Errors
    /// It lives and its descriptors cannot be read.
    pub fn open_devices(&self, pid: u32) -> Result<BTreeSet<Device>, EdgeError> {
        let descriptors = entries(&self.folder(pid).join("fd"))?;
        if !descriptors.is_empty() {
            return self.devices_among(descriptors);
        }
        // The first thread has ended, others may go on with the descriptors.
        let mut devices = BTreeSet::new();
        for thread in threads(&self.folder(pid))? {
            devices.extend(self.devices_among(entries(&thread.join("fd"))?)?);
        }
        Ok(devices)
    }

    fn devices_among(&self, descriptors: Vec<PathBuf>) -> Result<BTreeSet<Device>, EdgeError> {
        let mut numbers = Vec::new();
        for path in descriptors {
            let link = if_there(fs::read_link(&path).map_err(EdgeError::io("read", &path)))?;
            // Only what may be a device is looked at: a file of a dead file server would hold us up.
            if let Some(link) = link.filter(|link| link.to_string_lossy().contains("/dev/nvidia")) {
                numbers.extend(device_number(&path, &link));
            }
        }
        if numbers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let caps = self.capabilities()?;
        Ok(numbers.into_iter().filter_map(|number| caps.device(number)).collect())
    }

    /// What all levels together allow, as far as they list it.
    fn allowed(&self, folders: &[JobFolder]) -> Result<Option<BTreeSet<Device>>, EdgeError> {
        let mut allowed: Option<BTreeSet<(u32, u32)>> = None;
        for folder in folders.iter().filter(|folder| folder.version == Version::V1) {
            for level in folder.path.ancestors().take_while(|level| level.starts_with(&folder.top)) {
                let path = level.join("devices.list");
                let Some(text) = if_there(files::read_text(&path, MAX_LIST_BYTES))? else { continue };
                let rules = parse_list(&text).map_err(|why| EdgeError::Content { path, why })?;
                if let Some(rules) = rules {
                    allowed = Some(match allowed {
                        Some(below) => below.intersection(&rules).copied().collect(),
                        None => rules,
                    });
                }
            }
        }
        let Some(allowed) = allowed else { return Ok(None) };
        let caps = self.capabilities()?;
        Ok(Some(allowed.into_iter().filter_map(|number| caps.device(number)).collect()))
    }

    fn capabilities(&self) -> Result<Capabilities, EdgeError> {
        let text = |path: &str| {
            if_there(files::read_text(&self.procfs.join(path), MAX_LIST_BYTES)).map(Option::unwrap_or_default)
        };
        Ok(Capabilities {
            major: major_of("nvidia-caps", &text("devices")?),
            devices: parse_minors(&text("driver/nvidia-caps/mig-minors")?),
        })
    }
}

/// The devices below /dev/nvidia-caps.
#[derive(Debug)]
struct Capabilities {
    /// It is another one at every boot; `None` without the driver.
    major: Option<u32>,
    devices: BTreeMap<u32, Device>,
}

impl Capabilities {
    fn device(&self, (major, minor): (u32, u32)) -> Option<Device> {
        if major == NVIDIA_MAJOR {
            return (minor <= MAX_GPU_MINOR).then_some(Device::Gpu { minor });
        }
        self.devices.get(&minor).copied().filter(|_| self.major == Some(major))
    }
}

/// Major and minor of an open file; without an answer those that its name means.
fn device_number(path: &Path, link: &Path) -> Option<(u32, u32)> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_char_device() => {
            Some((libc::major(found.rdev()), libc::minor(found.rdev())))
        }
        Ok(_) => None,
        // The kernel follows it wherever the file lies: this process has ended, or is one of a recorded tree.
        Err(_) => Some((NVIDIA_MAJOR, number(link.to_str()?.strip_prefix("/dev/nvidia")?)?)),
    }
}

/// `c 195:3 rwm` for each device, or `a *:* rwm`, which says nothing: exceptions are not listed.
///
/// `None` where the list does not tell which of NVIDIA's devices are allowed.
fn parse_list(text: &str) -> Result<Option<BTreeSet<(u32, u32)>>, String> {
    let mut rules = BTreeSet::new();
    for line in text.lines() {
        let wrong = || format!("'{line}' is no rule of a device control group");
        let mut words = line.split(' ');
        let (kind, device, access) = match (words.next(), words.next(), words.next(), words.next()) {
            (Some(kind), Some(device), Some(access), None) => (kind, device, access),
            _ => return Err(wrong()),
        };
        let (major, minor) = device.split_once(':').ok_or_else(wrong)?;
        let any_or_number =
            |text: &str| if text == "*" { Ok(None) } else { number(text).map(Some).ok_or_else(wrong) };
        match (kind, any_or_number(major)?, any_or_number(minor)?) {
            ("a", ..) => return Ok(None),
            ("c", Some(major), Some(minor)) if access.contains('r') && access.contains('w') => {
                rules.insert((major, minor));
            }
            // All of a driver's devices: among them may be NVIDIA's, with exceptions or without.
            ("c", None, _) | ("c", Some(NVIDIA_MAJOR), None) => return Ok(None),
            ("c" | "b", ..) => {}
            _ => return Err(wrong()),
        }
    }
    Ok(Some(rules))
}

/// The major number of a character device in /proc/devices: ` 234 nvidia-caps`.
fn major_of(name: &str, devices: &str) -> Option<u32> {
    let characters = devices.split("Block devices:").next()?;
    characters.lines().find_map(|line| {
        let (major, found) = line.trim().split_once(' ')?;
        if found == name { number(major) } else { None }
    })
}

/// `gpu0/gi1/ci0/access 12`: the minor numbers below /dev/nvidia-caps (NVIDIA, "MIG User Guide", device nodes).
fn parse_minors(text: &str) -> BTreeMap<u32, Device> {
    let device = |line: &str| {
        let (name, minor) = line.split_once(' ')?;
        let mut parts = name.split('/');
        let mut id = |kind: &str| parts.next()?.strip_prefix(kind).and_then(number);
        let (gpu_minor, gi) = (id("gpu")?, id("gi")?);
        let device = match id("ci") {
            Some(ci) => Device::ComputeInstance { gpu_minor, gi, ci },
            None => Device::GpuInstance { gpu_minor, gi },
        };
        Some((number(minor)?, device))
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_allows_everything_says_nothing_and_others_are_read_exactly() {
        assert_eq!(parse_list("a *:* rwm\n"), Ok(None));
        assert_eq!(parse_list("c 195:* rwm\n"), Ok(None));
        assert_eq!(parse_list(""), Ok(Some(BTreeSet::new())));
        let text = "c 1:3 rwm\nc 195:3 rwm\nc 195:255 rw\nc 195:4 m\nb 8:0 rwm\nc 136:* rwm\n";
        assert_eq!(parse_list(text), Ok(Some([(1, 3), (195, 3), (195, 255)].into())));
        for wrong in ["c", "c 195 rw", "c 195:x rw", "d 1:3 rwm", "c 1:3 rwm x", "c 1:3  rwm", "\n"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mig_devices_are_known_by_gpu_and_instances() {
        let text =
            "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu7/gi2/ci1/access 1004\nx\n";
        let devices =
            "Character devices:\n195 nvidia-frontend\n234 nvidia-caps\n\nBlock devices:\n 9 nvidia-caps\n";
        let caps = Capabilities { major: major_of("nvidia-caps", devices), devices: parse_minors(text) };
        assert_eq!(caps.device((234, 12)), Some(Device::GpuInstance { gpu_minor: 0, gi: 1 }));
        assert_eq!(caps.device((234, 13)), Some(Device::ComputeInstance { gpu_minor: 0, gi: 1, ci: 0 }));
        assert_eq!(caps.device((234, 1004)), Some(Device::ComputeInstance { gpu_minor: 7, gi: 2, ci: 1 }));
        assert_eq!((caps.device((234, 1)), caps.device((235, 12))), (None, None));
        assert_eq!(caps.device((195, 3)), Some(Device::Gpu { minor: 3 }));
        assert_eq!(
            (caps.device((195, 255)), caps.device((195, 254)), caps.device((1, 3))),
            (None, None, None)
        );
    }
}
