//! One value that was asked for, and what came back.

use serde::{Deserialize, Serialize};

/// The answer to one question to the driver or the kernel.
///
/// "Not supported", "no permission", "lost", "timed out" and a failure are different answers all the way from the
/// reading to the report; none of them is ever zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// The value itself.
    Value(T),
    /// This board or this driver does not have the value. Neutral: the check does not apply.
    NotSupported,
    /// We were not allowed to read it: our own set-up, never the GPU's fault.
    NoPermission,
    /// The driver says that the GPU is lost (NVML code 15).
    Lost,
    /// The driver says that the GPU needs a reset (NVML code 16).
    ResetRequired,
    /// No answer before the deadline.
    TimedOut,
    /// Another NVML or system error with its code.
    Failed(i64),
    /// It was not asked for.
    #[default]
    NotRead,
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The same answer with the value changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then(|value| Reading::Value(change(value)))
    }

    /// What `next` makes of the value; every other answer stays what it is.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Reading::Value(value) => next(value),
            Reading::NotSupported => Reading::NotSupported,
            Reading::NoPermission => Reading::NoPermission,
            Reading::Lost => Reading::Lost,
            Reading::ResetRequired => Reading::ResetRequired,
            Reading::TimedOut => Reading::TimedOut,
            Reading::Failed(code) => Reading::Failed(code),
            Reading::NotRead => Reading::NotRead,
        }
    }
}

impl<T: std::fmt::Display> std::fmt::Display for Reading<T> {
    /// The value, or `-`: unknown is never printed as a number.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reading::Value(value) => value.fmt(out),
            _ => out.pad("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_prints_a_dash_and_zero_prints_zero() {
        assert_eq!(Reading::<u64>::NotSupported.to_string(), "-");
        assert_eq!(Reading::<u64>::TimedOut.to_string(), "-");
        assert_eq!(Reading::Value(0u64).to_string(), "0");
    }

    #[test]
    fn every_kind_of_answer_survives_json() {
        let all: [Reading<u64>; 8] = [
            Reading::Value(0),
            Reading::NotSupported,
            Reading::NoPermission,
            Reading::Lost,
            Reading::ResetRequired,
            Reading::TimedOut,
            Reading::Failed(999),
            Reading::NotRead,
        ];
        for reading in all {
            let text = serde_json::to_string(&reading).unwrap();
            assert_eq!(serde_json::from_str::<Reading<u64>>(&text).unwrap(), reading, "{text}");
        }
    }
}
