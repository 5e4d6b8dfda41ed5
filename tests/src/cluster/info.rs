//! What scontrol says about a job or a node.

use std::collections::BTreeMap;

/// One line of `scontrol -o show`, as key and value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads one line. Values may hold blanks and further `=`: only a capital letter begins a key of Slurm's, so
    /// `Reason=gpuward:XID79 GPU3; job=12` is one value.
    pub fn parse(line: &str) -> Info {
        let mut all = BTreeMap::new();
        let mut last: Option<(String, String)> = None;
        for word in line.split(' ') {
            match (split_key(word), &mut last) {
                (Some((key, value)), _) => {
                    all.extend(last.take());
                    last = Some((key.to_owned(), value.to_owned()));
                }
                (None, Some((_, value))) => {
                    value.push(' ');
                    value.push_str(word);
                }
                (None, None) => {}
            }
        }
        all.extend(last);
        Info(all.into_iter().map(|(key, value)| (key, value.trim_end().to_owned())).collect())
    }

    /// The value of a key as Slurm writes it, for example `JobState`; empty if it is not there.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// `JobState` of a job, `State` of a node, for example `IDLE+DRAIN`.
    pub fn state(&self) -> &str {
        let state = self.get("JobState");
        if state.is_empty() { self.get("State") } else { state }
    }

    /// Whether the state has this part, for example `DRAIN`.
    pub fn is(&self, part: &str) -> bool {
        self.state().split('+').any(|have| have.trim_end_matches('*') == part)
    }

    /// The reason of a node without the `[who@when]` that scontrol puts behind it.
    pub fn reason(&self) -> &str {
        let reason = self.get("Reason");
        reason.rfind(" [").map_or(reason, |cut| &reason[..cut])
    }
}

fn split_key(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    let is_key = key.starts_with(|first: char| first.is_ascii_uppercase())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:/".contains(&byte));
    is_key.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_blanks_and_equal_signs_stay_whole() {
        let line = "NodeName=n1 State=IDLE+DRAIN* Gres=gpu:h100:4(S:0) \
                    Reason=gpuward:XID79 GPU3 off the bus; job=12 do=reboot id=ab [root@2026-12-01T05:37:13] ";
        let info = Info::parse(line);
        assert_eq!(info.get("Gres"), "gpu:h100:4(S:0)");
        assert_eq!(info.reason(), "gpuward:XID79 GPU3 off the bus; job=12 do=reboot id=ab");
        assert!(info.is("DRAIN") && info.is("IDLE") && !info.is("DOWN"));
        assert_eq!(info.get("Nothing"), "");
        assert_eq!(Info::parse("JobId=1 JobState=RUNNING Reason=Prolog").state(), "RUNNING");
    }
}
