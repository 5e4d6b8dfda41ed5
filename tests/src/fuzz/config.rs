//! gpuward.toml.

use super::{line_is_there, shown, text};
use gpuward_core::config::{Config, Mode};

pub const WORDS: &[&str] = &[
    "[paths]\n",
    "run = \"/run/%n\"\n",
    "[probe]\n",
    "deadline_ms = 2000\n",
    "cold_deadline_ms",
    "[health]\n",
    "mode = \"drain\"\n",
    "[health.codes.XID79]\n",
    "[health.codes.\"",
    "expected_gpus = 8\n",
    "[health.limits]\n",
    "power_limit_pct = 90\n",
    "[log]\n",
    "level = \"debug\"\n",
    "\"\\u001b[31m\" = 1\n",
    "\"a`b`\" = 1\n",
    "'''",
    "\"\"\"",
    "[[",
    "{ mode = ",
    "a.b.c = 1\n",
];

/// A configuration that is taken keeps to its bounds; one that is not is told with a line that is there.
pub fn check(data: &[u8]) {
    let text = text(data);
    match Config::parse(&text, "f") {
        Err(error) => {
            let message = error.to_string();
            shown("the error", &message, 800);
            let line = message.strip_prefix("f:").and_then(|rest| rest.split(':').next()?.parse().ok());
            line_is_there(line.unwrap_or(0), &text);
        }
        Ok(config) => accepted(&config, &text),
    }
}

fn accepted(config: &Config, text: &str) {
    assert_eq!(Config::parse(text, "g").as_ref(), Ok(config), "the name of the file counts for nothing");
    assert!((100..=4900).contains(&config.probe.deadline_ms));
    assert!((config.probe.deadline_ms..=4900).contains(&config.probe.cold_deadline_ms));
    assert!((30..=86_400).contains(&config.limits().silent_recheck_s));
    let paths = config.paths.for_node("../n", "../c");
    for path in [&paths.run, &paths.state, &paths.spool, &paths.sysfs, &paths.procfs, &paths.kmsg] {
        assert!(path.starts_with('/'), "{path}");
    }
    for (code, policy) in &config.health.codes {
        assert_eq!(config.mode_of(code), policy.mode);
    }
    // Nothing drains that nobody told to.
    if !text.contains("drain") && !text.contains('\\') {
        assert!(config.mode_of("XID79") < Mode::Drain && config.mode_of("GPU_LOST") < Mode::Drain);
    }
}
