//! The part of slurm.conf that a site with gpuward needs, for its release of Slurm.
//!
//! Slurm refuses to start on a PrologFlag it does not know, and its settings grow with each release: so the text is
//! made for one release, and every line says why it is there.

use std::fmt;
use thiserror::Error;

/// A release of Slurm, as in `22.05`: the micro version changes no setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The year, two digits.
    pub major: u16,
    /// The month.
    pub minor: u16,
}

impl Release {
    /// The oldest release gpuward supports.
    pub const OLDEST: Release = Release { major: 20, minor: 11 };

    /// Finds the release in text such as `22.05`, `slurm-wlm 22.05.8` or `slurm 24.11.0-rc1`.
    ///
    /// # Errors
    /// Text without a release, or with one that is older than [`Release::OLDEST`].
    pub fn parse(text: &str) -> Result<Release, SlurmConfError> {
        let release = text
            .split_whitespace()
            .find_map(Release::from_word)
            .ok_or_else(|| SlurmConfError::NoRelease(crate::text::escape(text.trim(), 80)))?;
        if release < Release::OLDEST { Err(SlurmConfError::TooOld(release)) } else { Ok(release) }
    }

    fn from_word(word: &str) -> Option<Release> {
        let mut parts = word.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        // Slurm writes the month with two digits: "22.5" is a typing error, not a release.
        if minor.len() != 2 {
            return None;
        }
        Some(Release { major, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:02}", self.major, self.minor)
    }
}

/// Why no slurm.conf text was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SlurmConfError {
    /// No release number was found.
    #[error("no Slurm release in '{0}': expected something like 22.05")]
    NoRelease(String),
    /// The release is older than gpuward supports.
    #[error("Slurm {0} is not supported: the oldest release is {oldest}", oldest = Release::OLDEST)]
    TooOld(Release),
    /// A change that is not `KEY=VALUE` or `KEY+=VALUE`, or holds characters that would break the file.
    #[error("change '{0}': expected KEY=VALUE or KEY+=VALUE on one line, without '#'")]
    BadChange(String),
    /// A change of a setting that is not generated; such a line simply goes into slurm.conf.
    #[error("change of '{key}': not among the generated settings: {known}")]
    UnknownKey {
        /// The key that was given.
        key: String,
        /// All keys that are generated.
        known: String,
    },
    /// A PrologFlag that stops every daemon of this release.
    #[error("PrologFlags={flag}: Slurm {release} does not know this flag and would refuse to start")]
    UnknownFlag {
        /// The flag.
        flag: String,
        /// The release.
        release: Release,
    },
}

/// A wish of the site to differ from a generated value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    key: String,
    value: String,
    append: bool,
}

impl Change {
    /// Reads `KEY=VALUE` (replace the value) or `KEY+=VALUE` (append to a comma-separated list).
    ///
    /// # Errors
    /// Text of another form.
    pub fn parse(text: &str) -> Result<Change, SlurmConfError> {
        let bad = || SlurmConfError::BadChange(crate::text::escape(text, 120));
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let (key, append) = key.strip_suffix('+').map_or((key, false), |key| (key, true));
        let key_is_a_word = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // A backslash at the end would join the next line to this one.
        let breaks_the_line =
            value.contains('#') || value.contains(char::is_control) || value.ends_with('\\');
        let value_fits = !value.is_empty() && !breaks_the_line;
        if !key_is_a_word || !value_fits {
            return Err(bad());
        }
        Ok(Change { key: key.to_owned(), value: value.to_owned(), append })
    }
}

/// What differs from site to site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Absolute path of gpuward's prolog.
    pub prolog: String,
    /// Absolute path of gpuward's epilog.
    pub epilog: String,
    /// Absolute path of gpuward's health check.
    pub health_check: String,
    /// plugstack.conf, where it does not lie beside slurm.conf.
    pub plugstack: Option<String>,
    /// Values that this site wants otherwise.
    pub changes: Vec<Change>,
}

impl Default for Site {
    fn default() -> Self {
        Site::in_libexec("/usr/libexec/gpuward")
    }
}

impl Site {
    /// A site with gpuward's programs in this folder.
    pub fn in_libexec(folder: &str) -> Site {
        Site {
            prolog: format!("{folder}/prolog"),
            epilog: format!("{folder}/epilog"),
            health_check: format!("{folder}/healthcheck"),
            plugstack: None,
            changes: Vec::new(),
        }
    }
}

struct Setting {
    key: &'static str,
    value: String,
    why: &'static str,
    /// A suggestion only: written as a comment.
    off: bool,
}

/// The PrologFlags with the first release that knows them; "known since ever" is [`Release::OLDEST`].
const PROLOG_FLAGS: [(&str, Release); 8] = [
    ("Alloc", Release::OLDEST),
    ("Contain", Release::OLDEST),
    ("NoHold", Release::OLDEST),
    ("Serial", Release::OLDEST),
    ("X11", Release::OLDEST),
    ("DeferBatch", Release { major: 22, minor: 5 }),
    ("ForceRequeueOnFail", Release { major: 23, minor: 2 }),
    ("RunInJob", Release { major: 24, minor: 5 }),
];

fn knows_flag(release: Release, flag: &str) -> bool {
    PROLOG_FLAGS.iter().any(|(name, since)| name.eq_ignore_ascii_case(flag) && release >= *since)
}

/// The lines for slurm.conf, each with its reason.
///
/// # Errors
/// A change of a setting that is not generated, or to a PrologFlag that this release does not know.
pub fn generate(release: Release, site: &Site) -> Result<String, SlurmConfError> {
    let mut settings = settings(release, site);
    for change in &site.changes {
        apply(&mut settings, change)?;
    }
    check_flags(release, &settings)?;
    let mut text = format!(
        "# What gpuward needs in the slurm.conf of Slurm {release}, made by 'gpuward gen slurm.conf'.\n\
         # A key may stand only once in slurm.conf: where you have it already, merge the two lines.\n"
    );
    for setting in &settings {
        let off = if setting.off { "# " } else { "" };
        text.push_str(&format!("\n# {}\n{off}{}={}\n", setting.why, setting.key, setting.value));
    }
    text.push_str(OTHER_FILES);
    Ok(text)
}

const OTHER_FILES: &str = "
# Other files beside slurm.conf:
# cgroup.conf: ConstrainDevices=yes, or jobs can use each other's GPUs and their figures mix.
# gres.conf: as many GPUs as the hardware has, or the node is INVALID and drained.
# plugstack.conf: write 'optional', never 'required': a missing plugin must not stop the cluster.
";

fn apply(settings: &mut [Setting], change: &Change) -> Result<(), SlurmConfError> {
    let Some(setting) = settings.iter_mut().find(|setting| setting.key.eq_ignore_ascii_case(&change.key))
    else {
        let known: Vec<&str> = settings.iter().map(|setting| setting.key).collect();
        return Err(SlurmConfError::UnknownKey {
            key: crate::text::escape(&change.key, 60),
            known: known.join(", "),
        });
    };
    if change.append {
        setting.value.push(',');
        setting.value.push_str(&change.value);
    } else {
        setting.value.clone_from(&change.value);
    }
    // Who names a value wants the line.
    setting.off = false;
    Ok(())
}

fn check_flags(release: Release, settings: &[Setting]) -> Result<(), SlurmConfError> {
    let flags = settings.iter().filter(|setting| setting.key == "PrologFlags");
    for flag in flags.flat_map(|setting| setting.value.split(',')) {
        if !knows_flag(release, flag) {
            return Err(SlurmConfError::UnknownFlag { flag: crate::text::escape(flag, 60), release });
        }
    }
    Ok(())
}

fn on(key: &'static str, value: impl Into<String>, why: &'static str) -> Setting {
    Setting { key, value: value.into(), why, off: false }
}

fn off(key: &'static str, value: impl Into<String>, why: &'static str) -> Setting {
    Setting { key, value: value.into(), why, off: true }
}

fn settings(release: Release, site: &Site) -> Vec<Setting> {
    let mut all = programs(release, site);
    all.extend(requeue(release));
    all.extend(timeouts());
    all.extend(containment());
    all.extend(health_check(release, site));
    match &site.plugstack {
        Some(path) => all.push(on("PlugStackConfig", path, "Where the SPANK plugins are listed.")),
        None => all.push(off(
            "PlugStackConfig",
            "/etc/slurm/plugstack.conf",
            "Where the SPANK plugins are listed; needed only if not beside slurm.conf.",
        )),
    }
    all
}

fn programs(release: Release, site: &Site) -> Vec<Setting> {
    let wanted = ["Alloc", "DeferBatch", "ForceRequeueOnFail"];
    let flags: Vec<&str> = wanted.into_iter().filter(|flag| knows_flag(release, flag)).collect();
    vec![
        on(
            "Prolog",
            &site.prolog,
            "Is the hardware fit for this job? Must be executable on every node, or each job drains its node.",
        ),
        on(
            "Epilog",
            &site.epilog,
            "Checks again after the job and writes its record. Must be executable on every node.",
        ),
        on("PrologFlags", flags.join(","), prolog_flags_why(release)),
    ]
}

fn prolog_flags_why(release: Release) -> &'static str {
    if knows_flag(release, "ForceRequeueOnFail") {
        "Judge every node of a job before its script starts, and lose no --no-requeue job on a bad node."
    } else if knows_flag(release, "DeferBatch") {
        "Judge every node of a job before its script starts, not only the first node."
    } else {
        "Judge every node of a job at its allocation, not only the first node."
    }
}

fn requeue(release: Release) -> Vec<Setting> {
    let mut all = vec![
        on(
            "SchedulerParameters",
            "nohold_on_prolog_fail",
            "A job that met a bad node goes elsewhere; without this it waits held for an administrator.",
        ),
        on("JobRequeue", "1", "With 0 a batch job that met a bad node is killed instead of requeued."),
    ];
    if release >= (Release { major: 23, minor: 2 }) {
        all.push(on("MaxBatchRequeue", "5", "So many bad nodes may a job meet before it is held after all."));
    }
    all
}

fn timeouts() -> Vec<Setting> {
    vec![
        on("PrologEpilogTimeout", "60", "Slurm's default is to wait for ever for a program that hangs."),
        on(
            "MessageTimeout",
            "30",
            "A launch waits twice this time for the prolog; the default of 10 warns of prologs above 5 s.",
        ),
        on("BatchStartTimeout", "120", "Longer than any prolog may take; the default is 10 s."),
        on(
            "UnkillableStepTimeout",
            "180",
            "At least 5 x MessageTimeout, or nodes drain for nothing with 'Kill task failed'.",
        ),
    ]
}

fn containment() -> Vec<Setting> {
    vec![
        on("ProctrackType", "proctrack/cgroup", "No process leaves its job: none stays behind on a GPU."),
        on(
            "TaskPlugin",
            "task/affinity,task/cgroup",
            "CPU masks come from affinity, the limits on GPU devices from cgroup.",
        ),
        on("GresTypes", "gpu", "GPUs are given to jobs by Slurm."),
    ]
}

fn health_check(release: Release, site: &Site) -> Vec<Setting> {
    let mut all = vec![
        off(
            "HealthCheckProgram",
            &site.health_check,
            "Not in this version of gpuward yet: whole-node checks between jobs.",
        ),
        off("HealthCheckInterval", "300", "The default of 0 means never."),
        off(
            "HealthCheckNodeState",
            "ANY,CYCLE",
            "Drained nodes too, so that they can be lifted; CYCLE spreads the nodes over the interval.",
        ),
    ];
    if release >= (Release { major: 26, minor: 5 }) {
        all.push(off(
            "SlurmctldParameters",
            "health_check_report",
            "Tells the health check the state of its node, which else costs a question to slurmctld.",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> Release {
        Release::parse(text).unwrap()
    }

    #[test]
    fn releases_are_found_in_what_slurm_prints() {
        for text in ["22.05", "slurm-wlm 22.05.8", "slurm 22.05.0-0rc1\n"] {
            assert_eq!(release(text), Release { major: 22, minor: 5 }, "{text}");
        }
        assert_eq!(release("20.11").to_string(), "20.11");
        for text in ["", "slurm", "22", "22.5", "x.05"] {
            assert!(matches!(Release::parse(text), Err(SlurmConfError::NoRelease(_))), "{text}");
        }
        assert!(matches!(Release::parse("slurm 19.05.3"), Err(SlurmConfError::TooOld(_))));
    }

    #[test]
    fn no_release_gets_a_prolog_flag_it_does_not_know() {
        let flags = |text| {
            let conf = generate(release(text), &Site::default()).unwrap();
            conf.lines().find_map(|line| line.strip_prefix("PrologFlags=").map(str::to_owned)).unwrap()
        };
        assert_eq!(flags("20.11"), "Alloc");
        assert_eq!(flags("22.05"), "Alloc,DeferBatch");
        assert_eq!(flags("23.02"), "Alloc,DeferBatch,ForceRequeueOnFail");
        let site = Site { changes: vec![Change::parse("PrologFlags+=RunInJob").unwrap()], ..Site::default() };
        let error = generate(release("22.05"), &site).unwrap_err().to_string();
        assert!(error.starts_with("PrologFlags=RunInJob: Slurm 22.05 does not know"), "{error}");
        assert!(generate(release("24.05"), &site).is_ok());
    }

    #[test]
    fn a_change_replaces_or_appends_and_never_doubles_a_key() {
        let changes =
            ["SchedulerParameters+=bf_interval=1", "prologepilogtimeout=5", "HealthCheckInterval=9"];
        let changes = changes.iter().map(|text| Change::parse(text).unwrap()).collect();
        let conf = generate(release("22.05"), &Site { changes, ..Site::default() }).unwrap();
        let has = |line: &str| conf.lines().any(|have| have == line);
        assert!(has("SchedulerParameters=nohold_on_prolog_fail,bf_interval=1"), "{conf}");
        assert!(has("PrologEpilogTimeout=5") && has("HealthCheckInterval=9"), "{conf}");
        let mut keys: Vec<&str> =
            conf.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count, "{conf}");
    }

    #[test]
    fn a_change_that_cannot_be_made_says_why() {
        for text in ["", "x", "=1", "A=", "A=1\nB=2", "A B=1", "A=1 # x", "A=1\\", "A=\x1b[31m", "A=1\r"] {
            assert!(matches!(Change::parse(text), Err(SlurmConfError::BadChange(_))), "{text}");
        }
        let site = Site { changes: vec![Change::parse("ClusterName=x").unwrap()], ..Site::default() };
        let error = generate(release("22.05"), &site).unwrap_err().to_string();
        assert!(error.starts_with("change of 'ClusterName': not among"), "{error}");
        let changes = vec![Change::parse(&format!("{}=1", "x".repeat(5000))).unwrap()];
        let error = generate(release("22.05"), &Site { changes, ..Site::default() }).unwrap_err().to_string();
        assert!(error.len() < 1000, "{}", error.len());
    }
}
