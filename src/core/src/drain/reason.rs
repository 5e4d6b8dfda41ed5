//! The drain reason: one line that `sinfo -R` shows and a script can split.
//!
//! `gpuward:XID79 GPU3 0000:3b:00.0 GPU-8932f937 fallen off the bus; job=1234 do=reboot id=ab12cd`

use crate::health::{Finding, Subject};
use crate::model::JobId;
use crate::text::escape;

/// Every reason of ours begins with this.
pub const PREFIX: &str = "gpuward:";

/// Slurm's event table keeps 255 bytes of a reason (TINYTEXT).
pub const MAX_REASON_BYTES: usize = 255;

/// The reason for `finding`, met by `job`, with `id` naming the whole finding in the node's history.
///
/// Never longer than [`MAX_REASON_BYTES`]: what was seen is cut first. Quotes and `;` in it become blanks.
pub fn reason(finding: &Finding, job: Option<JobId>, id: &str) -> String {
    let subject = match &finding.subject {
        Subject::Node => String::new(),
        gpu => format!(" {gpu}"),
    };
    let head = format!("{PREFIX}{}{subject} ", finding.code);
    let job = job.map_or_else(String::new, |job| format!(" job={job}"));
    let tail = format!(";{job} do={} id={id}", finding.remedy.word());
    let room = MAX_REASON_BYTES.saturating_sub(head.len() + tail.len());
    let what: String = finding
        .what
        .chars()
        .map(|letter| if matches!(letter, ';' | '"' | '\'') { ' ' } else { letter })
        .collect();
    format!("{head}{}{tail}", escape(&what, room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Remedy, Severity};

    fn lost(what: &str) -> Finding {
        Finding {
            code: "XID79".into(),
            severity: Severity::Fail,
            subject: Subject::Gpu {
                slot: Some(3),
                pci: Some("0000:3b:00.0".parse().unwrap()),
                uuid: Some("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap()),
            },
            what: what.into(),
            value: None,
            limit: None,
            source: "kernel log".into(),
            why: "x".into(),
            remedy: Remedy::Reboot,
        }
    }

    #[test]
    fn the_reason_is_the_contract() {
        assert_eq!(
            reason(&lost("fallen off the bus"), Some(JobId(1234)), "ab12cd"),
            "gpuward:XID79 GPU3 0000:3b:00.0 GPU-8932f937 fallen off the bus; job=1234 do=reboot id=ab12cd"
        );
        let node = Finding { subject: Subject::Node, ..lost("nvidia kernel module is not loaded") };
        assert_eq!(
            reason(&node, None, "ab12cd"),
            "gpuward:XID79 nvidia kernel module is not loaded; do=reboot id=ab12cd"
        );
    }

    #[test]
    fn a_hostile_or_long_text_neither_breaks_the_line_nor_its_end() {
        let text = format!("a;b\"c'd\n{}", "é".repeat(300));
        let line = reason(&lost(&text), Some(JobId(u32::MAX)), "ab12cd");
        assert!(line.len() <= MAX_REASON_BYTES && line.is_ascii() && !line.contains(['\n', '"', '\'']));
        assert_eq!(line.matches(';').count(), 1);
        assert!(line.ends_with("; job=4294967295 do=reboot id=ab12cd"), "{line}");
    }
}
