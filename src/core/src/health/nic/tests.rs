use super::*;
use crate::health::History;
use crate::health::tests::{expected, healthy, whole};
use crate::model::topology::HostLayout;
use crate::model::{Reading, Snapshot};

/// `name layer state link gbps`, `-` where a file cannot be read; each on a card of its own unless the name ends in `b`.
fn nics(rows: &[&str]) -> Snapshot {
    let nic = |row: &&str| {
        let words: Vec<Option<String>> =
            row.split(' ').map(|word| Some(word.to_owned()).filter(|word| word != "-")).collect();
        let name = words[0].clone().unwrap();
        let card = name.trim_end_matches(['a', 'b']);
        let function = u8::from(name.ends_with('b'));
        NicReading {
            pci: format!("0000:{card:0>2}:00.{function}").parse().ok(),
            net: None,
            link_layer: words[1]
                .as_ref()
                .map(|word| if word == "ib" { "InfiniBand" } else { "Ethernet" }.into()),
            state: words[2].as_ref().map(|word| if word == "up" { "4: ACTIVE" } else { "1: DOWN" }.into()),
            link_state: words[3].clone(),
            rate: words[4].as_ref().map(|gbps| format!("{gbps} Gb/sec (4X NDR)")),
            name,
        }
    };
    let mut snapshot = healthy();
    let nics = Reading::Value(rows.iter().map(nic).collect());
    snapshot.host.layout = Some(HostLayout { nics, ..HostLayout::default() });
    snapshot
}

fn told_with(rows: &[&str], expected: &Expected) -> Vec<(String, Severity, String)> {
    let findings = whole(&nics(rows), expected, &History::default(), true);
    findings.into_iter().map(|finding| (finding.code, finding.severity, finding.what)).collect()
}

fn told(rows: &[&str]) -> Vec<(String, Severity, String)> {
    told_with(rows, &expected())
}

const UP: [&str; 3] = ["1a ib up 5:LinkUp 400", "2a ib up 5:LinkUp 400", "3a ib up 5:LinkUp 400"];

#[test]
fn an_infiniband_port_that_is_down_warns() {
    let down = |severity| vec![("NIC_DOWN".to_owned(), severity, "4a is down".to_owned())];
    let and = |row| [&UP[..], &[row]].concat();
    assert_eq!(told(&and("4a ib down 2:Polling 10")), down(Severity::Warn));
    assert_eq!(told(&["4a ib down 2:Polling 10"]), down(Severity::Warn), "also the only one");
    assert_eq!(told(&and("4a ib down - -")), down(Severity::Warn));
    assert_eq!(told(&and("4a ib down 3:Disabled 10")), [], "switched off");
    assert_eq!(told(&and("4a ib - - -")), [], "nobody can tell");
    assert_eq!(told(&and("4a - down 2:Polling 10")), [], "it may be Ethernet");
    let second = told(&and("3b ib down 2:Polling 10"));
    assert_eq!((second[0].1, second.len()), (Severity::Info, 1), "the other port of a card");
}

#[test]
fn an_ethernet_port_that_is_down_is_a_fault_only_if_it_was_up_before() {
    let down = ["9a eth down 2:Polling 10"];
    assert_eq!(told(&down), []);
    let known = |up| Expected {
        known_nics: vec![KnownNic { name: "9a".into(), pci: None, up, rate_gbps: Some(100) }],
        ..expected()
    };
    assert_eq!(told_with(&down, &known(true))[0].0, "NIC_DOWN");
    assert_eq!(told_with(&down, &known(false)), []);
}

#[test]
fn a_port_is_too_slow_against_most_of_its_siblings_or_its_own_past() {
    let slow = |name: &str, own: u32| {
        ("NIC_RATE".to_owned(), Severity::Warn, format!("{name} runs at {own} of 400 Gb/s"))
    };
    let and = |row| [&UP[..], &[row]].concat();
    assert_eq!(told(&and("4a ib up 5:LinkUp 200")), [slow("4a", 200)]);
    assert_eq!(told(&and("4a ib up 5:LinkUp 400")), []);
    assert_eq!(told(&and("4a ib up 5:LinkUp 800")), [], "faster");
    assert_eq!(told(&and("4a ib up 5:LinkUp -")), []);
    assert_eq!(told(&and("4a eth up 5:LinkUp 100")), [], "a front-end port is no sibling");
    assert_eq!(told(&UP[..2]), []);
    assert_eq!(told(&["1a ib up - 400", "2a ib up - 200"]), [], "two do not say which is right");
    let half = ["1a ib up - 400", "2a ib up - 400", "3a ib up - 200", "4a ib up - 200"];
    assert_eq!(told(&half), [], "two kinds of card");
    let known = Expected {
        known_nics: vec![KnownNic { name: "1a".into(), pci: None, up: true, rate_gbps: Some(400) }],
        ..expected()
    };
    assert_eq!(told_with(&["1a ib up - 200"], &known), [slow("1a", 200)]);
}

#[test]
fn the_order_of_ports_changes_nothing_and_a_slower_port_is_never_better() {
    let mut last = 0;
    for rate in [400, 399, 200, 100, 56, 10] {
        let row = format!("4a ib up 5:LinkUp {rate}");
        let mut rows = [&UP[..], &[row.as_str()]].concat();
        let forwards = told(&rows);
        rows.reverse();
        assert_eq!(told(&rows), forwards);
        assert!(forwards.len() >= last, "{rate}");
        last = forwards.len();
    }
    assert_eq!(last, 1);
}

#[test]
fn a_port_is_remembered_as_it_is_and_what_was_accepted_is_no_finding_any_more() {
    let rows = ["1a ib up 5:LinkUp 400", "4a ib down 2:Polling 10", "5a ib - - -"];
    let known = now(&nics(&rows));
    let told: Vec<(&str, bool, Option<u32>)> =
        known.iter().map(|nic| (nic.name.as_str(), nic.up, nic.rate_gbps)).collect();
    assert_eq!(
        told,
        [("1a", true, Some(400)), ("4a", false, None)],
        "what nobody can tell is not remembered"
    );
    assert_eq!(told_with(&rows, &expected())[0].0, "NIC_DOWN");
    let accepted = Expected { known_nics: known, ..expected() };
    assert_eq!(told_with(&rows, &accepted), []);
    assert_eq!(told_with(&["1a ib down 2:Polling 10"], &accepted)[0].0, "NIC_DOWN");
}
