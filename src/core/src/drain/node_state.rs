//! What `scontrol -o show node` says about a node.

/// State and reason of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// As Slurm prints it: base state and flags joined by `+`, `IDLE+DRAIN`.
    pub state: String,
    /// The reason without author and time; `None` where there is none.
    pub reason: Option<String>,
}

impl NodeState {
    /// True where the node takes no jobs by somebody's or Slurm's decision.
    pub fn is_out_of_service(&self) -> bool {
        let flags = ["DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "DOWN"];
        let word =
            |flag: &str| flag.trim_end_matches(|letter: char| !letter.is_ascii_alphabetic()).to_owned();
        self.state.split('+').any(|flag| flags.contains(&word(flag).as_str()))
    }
}

/// Reads the one line of `scontrol -o show node NAME`; `None` where it holds no state.
///
/// The reason may hold blanks and equal signs. It is followed by ` [author@time]` and stands near the end of the line,
/// before `Comment=` and `Extra=`.
pub fn parse_show_node(line: &str) -> Option<NodeState> {
    let state = line.split_whitespace().find_map(|word| word.strip_prefix("State="))?;
    let reason = line.split_once(" Reason=").map(|(_, rest)| {
        let end = rest.rfind(" [").unwrap_or(rest.len());
        rest[..end].trim_end().to_owned()
    });
    Some(NodeState { state: state.to_owned(), reason: reason.filter(|reason| !reason.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_reason_are_read_from_slurms_line() {
        let line = "NodeName=n1 Arch=x86_64 CoresPerSocket=1 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=p Gres=gpu:8 Reason=bad = cable, [see ticket] [root@2026-12-01T05:00:00]";
        let state = parse_show_node(line).unwrap();
        assert_eq!(state.state, "IDLE+DRAIN");
        assert_eq!(state.reason.as_deref(), Some("bad = cable, [see ticket]"));
        assert!(state.is_out_of_service());
    }

    #[test]
    fn a_node_in_service_has_neither() {
        let state = parse_show_node("NodeName=n1 State=MIXED+CLOUD* ThreadsPerCore=1 Comment=x").unwrap();
        assert_eq!(state.reason, None);
        assert!(!state.is_out_of_service());
        assert!(parse_show_node("slurm_load_node error: Unable to contact slurm controller").is_none());
    }

    #[test]
    fn marks_behind_a_state_do_not_hide_it() {
        for text in ["DOWN*", "IDLE+DRAIN*", "ALLOCATED+DRAIN$", "DRAINED", "FAILING*"] {
            assert!(NodeState { state: text.into(), reason: None }.is_out_of_service(), "{text}");
        }
        for text in ["IDLE*", "PLANNED", "IDLE+POWERED_DOWN", "COMPLETING"] {
            assert!(!NodeState { state: text.into(), reason: None }.is_out_of_service(), "{text}");
        }
    }
}
