//! Every sample of a kernel-log record is read as it says: `data/kernel_log_samples.txt`, whose head is the grammar.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::kernel_log::{Event, EventCode, parse_record};

const SAMPLES: &str = include_str!("data/kernel_log_samples.txt");

/// One sample: its number, the records joined as one, and what it expects.
#[derive(Debug)]
struct Case {
    number: String,
    record: String,
    expected: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in SAMPLES.lines().filter(|line| !line.starts_with('#')) {
        let (head, text) = line.split_at(4);
        let (word, text) = text.split_once(' ').unwrap();
        match (word, cases.last_mut()) {
            ("LINE", _) => cases.push(Case {
                number: head.trim().to_owned(),
                record: text.to_owned(),
                expected: String::new(),
            }),
            ("NEXT", Some(case)) => case.record.push_str(&format!("\\x0a{text}")),
            ("EXPECT", Some(case)) => case.expected = text.to_owned(),
            ("NOTE" | "TAG", Some(_)) => {}
            other => panic!("{other:?}: {line}"),
        }
    }
    cases
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The five fields; details in the order of their names.
fn fields(event: &Event) -> [String; 5] {
    let pci = event.pci.map(|pci| format!("{:04x}:{:02x}:{:02x}", pci.domain, pci.bus, pci.device));
    let code = match event.code {
        EventCode::None => "none".to_owned(),
        EventCode::Xid(number) => format!("xid {number}"),
        EventCode::Sxid(number) => format!("sxid {number}"),
    };
    let mut details: Vec<String> =
        event.details.iter().map(|(key, value)| format!("{key}={value}")).collect();
    details.extend(event.what.map(|what| format!("event={}", what.word())));
    details.sort();
    let details = if details.is_empty() { "-".to_owned() } else { details.join("; ") };
    [shown(pci), code, shown(event.pid), shown(event.process.as_deref()), details]
}

#[test]
fn every_sample_is_read_exactly() {
    let cases = cases();
    assert_eq!(cases.len(), SAMPLES.lines().filter(|line| line.get(4..9) == Some("LINE ")).count());
    assert!(cases.len() > 50, "the samples are there");
    let mut wrong = Vec::new();
    for case in &cases {
        let event = parse_record(&case.record);
        let expected: Vec<&str> = case.expected.split(" | ").collect();
        let [pci, code, pid, process, extra] = expected[..] else {
            assert_eq!(case.expected, "no match", "{}", case.number);
            wrong.extend(event.map(|event| format!("{}: {event:?}", case.number)));
            continue;
        };
        let mut details: Vec<&str> = extra.split("; ").collect();
        details.sort_unstable();
        // "keep" names a text that must survive in the message.
        let kept = details.iter().find_map(|detail| detail.strip_prefix("keep="));
        details.retain(|detail| !detail.starts_with("keep="));
        let expected = [pci, code, pid, process, &details.join("; ")].map(ToOwned::to_owned);
        let found = event.as_ref().map(fields);
        if found.as_ref() != Some(&expected) {
            wrong.push(format!("{}: {found:?}\n  wanted {expected:?}", case.number));
        }
        if kept.is_some_and(|text| !event.as_ref().is_some_and(|event| event.message.contains(text))) {
            wrong.push(format!("{}: the message lost '{}'", case.number, kept.unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} samples\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_sample_is_read_the_same_through_the_forms_that_programs_print() {
    use gpuward_core::health::kernel_log::lines::Reader;
    for case in cases() {
        let wanted: Vec<Event> = parse_record(&case.record).into_iter().collect();
        for prefix in [
            "3,812,5690716,-;",
            "[ 1234.567890] ",
            "[Tue Dec  1 18:09:17 2026] ",
            "kern  :err   : [ 1234.567890] ",
            "<3>[ 1234.567890] ",
            "2026-12-01T18:09:17,123456+00:00 ",
            "[ 1234.567890] [   T1234] ",
            "Dec 01 18:09:17 node7 kernel: ",
            "Dec  1 18:09:17 node7 kernel: [ 1234.567890] ",
            "2026-12-01T18:09:17+0000 node7 kernel: ",
            "[ 1234.567890] node7 kernel: ",
            "",
        ] {
            let mut reader = Reader::default();
            let line = format!("{prefix}{}", case.record);
            let mut events: Vec<Event> = reader.feed(&line).into_iter().map(|line| line.event).collect();
            events.extend(reader.end().map(|line| line.event));
            assert_eq!(events, wanted, "{} with '{prefix}'", case.number);
        }
    }
}

#[test]
fn a_record_of_several_lines_is_one_event_where_programs_print_them_apart() {
    use gpuward_core::health::kernel_log::lines::Reader;
    for case in cases().iter().filter(|case| case.record.contains("\\x0a")) {
        let wanted = parse_record(&case.record).unwrap();
        for (first, others) in
            [("Dec 01 18:09:17 node7 kernel: ", "Dec 01 18:09:17 node7 kernel: "), ("[ 12.5] ", "         ")]
        {
            let mut reader = Reader::default();
            let mut events = Vec::new();
            for (at, line) in case.record.split("\\x0a").enumerate() {
                let prefix = if at == 0 { first } else { others };
                events.extend(reader.feed(&format!("{prefix}{line}")));
            }
            events.extend(reader.end());
            let found: Vec<_> = events.iter().map(|line| fields(&line.event)).collect();
            assert_eq!(found, [fields(&wanted)], "{}", case.number);
        }
    }
}
