//! Where two values differ, so that a failed comparison of a machine can be read.

use serde::Serialize;
use serde_json::Value;

/// Every place where two values differ, one a line, as `path: NAME value, NAME value`; empty where they are equal.
pub fn differences<T: Serialize>(left: (&str, &T), right: (&str, &T)) -> Vec<String> {
    let json = |value: &T| serde_json::to_value(value).expect("plain data serialises");
    let mut found = Vec::new();
    let names = Names { left: left.0, right: right.0 };
    compare(&names, "", &json(left.1), &json(right.1), &mut found);
    found
}

struct Names<'a> {
    left: &'a str,
    right: &'a str,
}

fn compare(names: &Names<'_>, path: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for ((key, value), other) in a.iter().zip(b.values()) {
                let dot = if path.is_empty() { "" } else { "." };
                compare(names, &format!("{path}{dot}{key}"), value, other, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (place, (value, other)) in a.iter().zip(b).enumerate() {
                compare(names, &format!("{path}[{place}]"), value, other, found);
            }
        }
        _ if left == right => {}
        _ => found.push(format!("{path}: {} {left}, {} {right}", names.left, names.right)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_told_with_its_place_and_both_values() {
        let left = json!({"gpus": [{"temp": {"value": 31}}, {"temp": "lost"}], "links": [1, 2]});
        let right = json!({"gpus": [{"temp": {"value": 32}}, {"temp": {"value": 0}}], "links": [1]});
        assert_eq!(
            differences(("probe", &left), ("raw", &right)),
            [
                "gpus[0].temp.value: probe 31, raw 32",
                "gpus[1].temp: probe \"lost\", raw {\"value\":0}",
                "links: probe [1,2], raw [1]",
            ]
        );
        assert_eq!(differences(("probe", &left), ("raw", &left)), Vec::<String>::new());
    }
}
