//! Compares every value of a snapshot with what a second reader says, between two snapshots taken around it.

use serde_json::Value;
use std::collections::BTreeMap;

/// Values by path, `detail.power.draw_mw` or `detail.nvlinks[3].up`, as the snapshot's file has them: `{"value": 7}`, or a
/// word for the answer.
pub type Flat = BTreeMap<String, Value>;

/// What nvidia-smi prints where it has no value, whatever the reason.
pub const NOT_TOLD: &str = "n/a";

/// All values below `value`.
pub fn flatten(path: &str, value: &Value, out: &mut Flat) {
    match value {
        Value::Object(parts) if !is_reading(value) => {
            // How long the reading took, and a link's number, which stands in the path.
            for (key, part) in parts.iter().filter(|(key, _)| !["took_us", "link"].contains(&key.as_str())) {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{key}"), part, out);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{}]", name_of(item, place)), item, out);
            }
        }
        // Nobody asked.
        Value::String(word) if word == "not_read" => {}
        _ => {
            out.insert(path.to_owned(), value.clone());
        }
    }
}

/// Links go by number, peers by address, MIG devices by UUID, whatever their order.
fn name_of(item: &Value, place: usize) -> String {
    ["link", "pci", "uuid"].iter().find_map(|key| plain(item.get(key)?)).unwrap_or_else(|| place.to_string())
}

fn plain(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned).or_else(|| value.as_u64().map(|number| number.to_string()))
}

fn is_reading(value: &Value) -> bool {
    value.as_object().is_some_and(|parts| {
        parts.len() == 1 && (parts.contains_key("value") || parts.contains_key("failed"))
    })
}

/// The value's name without its place: all links are one row.
pub fn name(path: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for letter in path.trim_start_matches("detail.").chars() {
        inside = inside && letter != ']';
        if !inside {
            out.push(letter);
        }
        inside = inside || letter == '[';
    }
    out
}

/// A value for people.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(word) => word.replace('_', " "),
        Value::Object(parts) if is_reading(value) => match parts.get("value") {
            Some(Value::Null) => "answers".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(inner) => inner.to_string(),
            None => format!("error {}", parts["failed"]),
        },
        other => other.to_string(),
    }
}

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Both say the same.
    Agree,
    /// They do not.
    Differ,
    /// Nothing to compare with, and why.
    Open(&'static str),
}

/// Compares what the second reader says with what gpuward said before and after it.
pub fn compare(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    second: Option<&Value>,
    exactness: f64,
) -> Outcome {
    let Some(second) = second else { return Outcome::Open("the second reader does not say it") };
    let (Some(before), Some(after)) = (before, after) else {
        return Outcome::Open("gpuward does not read it");
    };
    if second == before || second == after {
        return Outcome::Agree;
    }
    let value = |reading: &Value| reading.get("value").cloned();
    if second.as_str() == Some(NOT_TOLD) {
        let has = value(before).is_some();
        return if has { Outcome::Open("the second reader prints N/A") } else { Outcome::Agree };
    }
    let name = name(path);
    if name == "processes" && before != after {
        return Outcome::Open("processes came and went");
    }
    match (value(before), value(after), value(second)) {
        (Some(before), Some(after), Some(second)) => {
            let inside = inside(&name, &before, &after, &second, exactness);
            if inside { Outcome::Agree } else { Outcome::Differ }
        }
        _ => Outcome::Differ,
    }
}

fn inside(name: &str, before: &Value, after: &Value, second: &Value, exactness: f64) -> bool {
    if let (Value::Array(before), Value::Array(after), Value::Array(second)) = (before, after, second) {
        return before.len() == second.len()
            && after.len() == second.len()
            && (0..second.len()).all(|at| inside(name, &before[at], &after[at], &second[at], exactness));
    }
    if name == "clocks.event_reasons" {
        let bits = |value: &Value| value.as_u64().unwrap_or(0);
        return bits(second) & !(bits(before) | bits(after)) == 0;
    }
    match (before.as_f64(), after.as_f64(), second.as_f64()) {
        (Some(before), Some(after), Some(second)) => {
            let slack = exactness.max(slack(name, before.abs().max(after.abs())));
            (before.min(after) - slack..=before.max(after) + slack).contains(&second)
        }
        _ => before == second || after == second,
    }
}

/// How far a value may be outside of what was read before and after. Counters and settings: not at all. For the rest the
/// numbers are ours: what an idle GPU moves within a second.
fn slack(name: &str, size: f64) -> f64 {
    match name {
        "temp_c" | "temp.memory_c" => 2.0,
        "power.draw_mw" => 5000.0 + size * 0.1,
        "clocks.now_mhz" => size * 0.1,
        "clocks.util_pct" => 10.0,
        "memory.used_mib" | "memory.bar1_used_mib" => 16.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(path: &str, before: Value, after: Value, second: Value) -> Outcome {
        compare(path, Some(&before), Some(&after), Some(&second), 0.0)
    }

    #[test]
    fn a_counter_lies_between_the_reading_before_and_the_one_after() {
        let energy = |second| {
            of("counters.energy_mj", json!({"value": 100}), json!({"value": 110}), json!({"value": second}))
        };
        assert_eq!([energy(100), energy(105), energy(110)], [Outcome::Agree, Outcome::Agree, Outcome::Agree]);
        assert_eq!([energy(99), energy(111)], [Outcome::Differ, Outcome::Differ]);
    }

    #[test]
    fn a_setting_and_an_answer_without_a_value_are_the_same_or_differ() {
        let limit = |second| {
            of("detail.power.limit_mw", json!({"value": 700_000}), json!({"value": 700_000}), second)
        };
        assert_eq!(limit(json!({"value": 700_000})), Outcome::Agree);
        assert_eq!(limit(json!({"value": 700_001})), Outcome::Differ);
        assert_eq!(limit(json!("not_supported")), Outcome::Differ);
        assert_eq!(limit(json!(NOT_TOLD)), Outcome::Open("the second reader prints N/A"));
        let absent = json!("not_supported");
        assert_eq!(
            of("detail.temp.memory_c", absent.clone(), absent.clone(), json!({"value": 0})),
            Outcome::Differ
        );
        assert_eq!(of("detail.temp.memory_c", absent.clone(), absent.clone(), absent), Outcome::Agree);
    }

    #[test]
    fn a_value_that_moves_may_move_a_little_and_a_list_in_each_of_its_parts() {
        let clocks = |second| {
            let read = json!({"value": [345, 345, 2619, 765]});
            of("detail.clocks.now_mhz", read.clone(), read, second)
        };
        assert_eq!(clocks(json!({"value": [360, 345, 2619, 765]})), Outcome::Agree);
        assert_eq!(clocks(json!({"value": [345, 345, 345, 765]})), Outcome::Differ);
        assert_eq!(clocks(json!({"value": [345, 345]})), Outcome::Differ);
        let bits =
            |second| of("detail.clocks.event_reasons", json!({"value": 4}), json!({"value": 1}), second);
        assert_eq!(bits(json!({"value": 5})), Outcome::Agree);
        assert_eq!(bits(json!({"value": 8})), Outcome::Differ);
    }

    #[test]
    fn links_go_by_their_number_and_are_one_row() {
        let mut flat = Flat::new();
        let gpu = json!({"took_us": 7, "temp_c": {"value": 31}, "detail": {"nvlinks": [{"link": 3, "up": {"value": true}}]}});
        flatten("", &gpu, &mut flat);
        let paths: Vec<&str> = flat.keys().map(String::as_str).collect();
        assert_eq!(paths, ["detail.nvlinks[3].up", "temp_c"]);
        assert_eq!(name("detail.nvlinks[3].up"), "nvlinks[].up");
    }
}
