//! gpuward.toml: schema, defaults, validation with file and line.
//!
//! Every setting has a default, and the defaults only observe. An unknown key is an error that names the nearest valid
//! one. Reading the file, and who may own it, is the business of the edges.

mod error;
mod expected;
pub mod fleet;
mod schema;

use crate::health::overrides::Overrides;
use crate::health::sxid::MAX_SXID;
use crate::health::xid::MAX_XID;
use std::collections::BTreeMap;

pub use error::ConfigError;
pub(crate) use error::nearest;
pub use expected::{ComputeMode, Contradiction, ExpectedNodes};
pub use schema::{
    CodePolicy, Config, EnvironmentMode, EnvironmentSettings, HealthSettings, LogLevel, LogSettings, Mode,
    NvmlSettings, Paths, ProbeSettings, RowPolicy, SlurmSettings,
};

impl Config {
    /// Reads the text of a gpuward.toml; `file` is only used in messages.
    ///
    /// # Errors
    /// Text that is not TOML, an unknown key, a value of the wrong type or out of range: with file, line, key, value
    /// and what is allowed.
    pub fn parse(text: &str, file: &str) -> Result<Config, ConfigError> {
        let config: Config =
            toml::from_str(text).map_err(|error| ConfigError::from_toml(&error, text, file))?;
        config.validate(text, file)?;
        Ok(config)
    }

    /// The same for somebody who looks: also whether the file says one thing of every node.
    ///
    /// # Errors
    /// As [`Config::parse`], and two settings that say different things of one node.
    pub fn parse_whole(text: &str, file: &str) -> Result<Config, ConfigError> {
        let config = Config::parse(text, file)?;
        config.check_fleet(text, file)?;
        Ok(config)
    }

    fn validate(&self, text: &str, file: &str) -> Result<(), ConfigError> {
        let range = |key: &str, value: u64, from: u64, to: u64| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(ConfigError::range(file, text, key, value, from, to))
        };
        range("deadline_ms", self.probe.deadline_ms, 100, 4900)?;
        range("cold_deadline_ms", self.probe.cold_deadline_ms, self.probe.deadline_ms, 4900)?;
        range("silent_recheck_s", self.probe.silent_recheck_s, 30, 86_400)?;
        // Three calls must fit below the 30 s that a supervisor waits at most.
        range("scontrol_deadline_ms", self.slurm.scontrol_deadline_ms, 100, 9000)?;
        for (key, path) in self.paths.all() {
            if !path.starts_with('/') {
                return Err(ConfigError::value(
                    file,
                    text,
                    key,
                    path,
                    "an absolute path; %n and %c are allowed in it",
                ));
            }
        }
        self.validate_expected(text, file)?;
        for code in self.health.codes.keys() {
            if !crate::health::codes::is_known(code) {
                return Err(ConfigError::unknown_code(file, text, code));
            }
        }
        self.validate_catalogues(text, file)
    }

    fn validate_catalogues(&self, text: &str, file: &str) -> Result<(), ConfigError> {
        for (key, path) in
            [("xid_catalogue", &self.health.xid_catalogue), ("sxid_catalogue", &self.health.sxid_catalogue)]
        {
            if !path.is_empty() && !path.starts_with('/') {
                return Err(ConfigError::value(file, text, key, path, "an absolute path, or nothing"));
            }
        }
        for (family, rows, max) in [("xid", &self.health.xid, MAX_XID), ("sxid", &self.health.sxid, MAX_SXID)]
        {
            let is_number = |key: &str| key.parse::<u32>().is_ok_and(|number| number <= max);
            if let Some(key) = rows.keys().find(|key| !is_number(key)) {
                return Err(ConfigError::no_number(file, text, family, key, max));
            }
        }
        Ok(())
    }

    /// The limits in force.
    pub fn limits(&self) -> crate::health::Limits {
        crate::health::Limits { silent_recheck_s: self.probe.silent_recheck_s, ..self.health.limits.clone() }
    }

    /// The rows that gpuward.toml itself puts in the place of the catalogues'.
    pub fn overrides(&self) -> Overrides {
        let rows = |rows: &BTreeMap<String, RowPolicy>| {
            rows.iter().filter_map(|(key, row)| Some((key.parse().ok()?, row.action))).collect()
        };
        Overrides { xid: rows(&self.health.xid), sxid: rows(&self.health.sxid) }
    }

    /// The mode in force for a finding code: its own, else the overall one as far as the code's cap allows; an alias
    /// counts as the code itself.
    pub fn mode_of(&self, code: &str) -> Mode {
        let overall = || self.health.mode.min(crate::health::codes::entry(code).cap);
        self.health.codes.get(code).map_or_else(overall, |policy| policy.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        Config::parse(text, "gpuward.toml").unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_means_the_defaults_and_they_only_observe() {
        let config = Config::parse("", "f").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.health.mode, Mode::Observe);
        assert_eq!(config.environment.mode, EnvironmentMode::Observe);
        assert_eq!(config.mode_of("XID79"), Mode::Observe);
    }

    #[test]
    fn an_unknown_key_names_file_line_and_the_nearest_key() {
        let text = "[paths]\nrun = \"/run/x\"\n\n[probe]\ndeadlin_ms = 3\n";
        let error = error_of(text);
        assert!(error.starts_with("gpuward.toml:5: "), "{error}");
        assert!(error.contains("deadlin_ms") && error.contains("did you mean 'deadline_ms'"), "{error}");
    }

    #[test]
    fn only_keys_of_ours_are_proposed_and_no_key_leaves_its_line() {
        let error = error_of("\"a`b`\\u001b\" = 1\n");
        assert!(error.contains("did you mean '") && !error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn values_out_of_range_name_what_is_allowed() {
        let error = error_of("[probe]\ndeadline_ms = 60000\n");
        assert_eq!(error, "gpuward.toml:2: deadline_ms = 60000: allowed are 100 to 4900");
        let error = error_of("[health]\nmode = \"kill\"\n");
        assert!(error.starts_with("gpuward.toml:2: ") && error.contains("`drain`"), "{error}");
        let error = error_of("[paths]\nrun = \"run\"\n");
        assert!(error.starts_with("gpuward.toml:2: run = 'run': allowed is an absolute path"), "{error}");
    }

    #[test]
    fn a_mode_may_be_set_for_each_code() {
        let text = "[health]\nmode = \"comment\"\n[health.codes.XID79]\nmode = \"drain\"\n";
        let config = Config::parse(text, "f").unwrap();
        assert_eq!(config.mode_of("XID79"), Mode::Drain);
        assert_eq!(config.mode_of("XID48"), Mode::Comment);
        let error = error_of("[health.codes.XID7O]\nmode = \"drain\"\n");
        assert!(error.starts_with("gpuward.toml:1: ") && error.contains("XID7O"), "{error}");
    }

    #[test]
    fn rows_of_the_catalogues_may_be_replaced() {
        use crate::health::action::Action;
        let text = "[health.xid.79]\naction = \"warn\"\n[health.sxid.20034]\naction = \"drain-rma\"\n";
        let overrides = Config::parse(text, "f").unwrap().overrides();
        assert_eq!(overrides.xid.get(&79), Some(&Action::Warn));
        assert_eq!(overrides.sxid.get(&20_034), Some(&Action::DrainRma));
        let error = error_of("[health.xid.79]\naction = \"explode\"\n");
        assert!(
            error.starts_with("gpuward.toml:2: ")
                && error.contains("unknown action 'explode', allowed are ignore, info, "),
            "{error}"
        );
        let error = error_of("\n[health.xid.7O]\naction = \"warn\"\n");
        assert_eq!(error, "gpuward.toml:2: [health.xid.7O]: '7O' is no number up to 9999");
        let error = error_of("[health.sxid.100000]\naction = \"warn\"\n");
        assert_eq!(error, "gpuward.toml:1: [health.sxid.100000]: '100000' is no number up to 99999");
        let error = error_of("[health]\nxid_catalogue = \"xid.tsv\"\n");
        assert!(
            error.starts_with("gpuward.toml:2: xid_catalogue = 'xid.tsv': allowed is an absolute path"),
            "{error}"
        );
    }

    #[test]
    fn node_and_cluster_stand_in_for_their_letters_and_cannot_leave_the_folder() {
        let paths = Paths { run: "/t/%c/%n/100%%".into(), ..Paths::default() };
        assert_eq!(paths.for_node("n1", "alpha").run, "/t/alpha/n1/100%");
        assert_eq!(paths.for_node("../../etc", "a/b").run, "/t/a_b/.._.._etc/100%");
    }
}
