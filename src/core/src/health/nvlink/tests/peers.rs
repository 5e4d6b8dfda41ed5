//! Peer-to-peer access.

use super::*;

fn with_peers(mut snapshot: Snapshot) -> Snapshot {
    let count = snapshot.gpus.len();
    for at in 0..count {
        let peer = |other| PeerReading {
            pci: Some(pci(other)),
            read: Reading::Value(0),
            write: Reading::Value(0),
            nvlink: Reading::NotRead,
        };
        detail(&mut snapshot, at).peers = (0..count).filter(|other| *other != at).map(peer).collect();
    }
    snapshot
}

fn refuse(snapshot: &mut Snapshot, a: usize, b: usize, status: u32) {
    for (at, other) in [(a, b), (b, a)] {
        let peers = detail(snapshot, at).peers.iter_mut();
        peers
            .filter(|peer| peer.pci == Some(pci(other)))
            .for_each(|peer| peer.write = Reading::Value(status));
    }
}

#[test]
fn a_gpu_that_nobody_reaches_is_told_once() {
    let mut snapshot = with_peers(switched());
    assert_eq!(judged(&snapshot, &Expected::default()), []);
    for other in [0, 1, 3] {
        refuse(&mut snapshot, 2, other, 5);
    }
    let findings = found(&snapshot, &Expected::default(), &History::default());
    assert_eq!(short(&snapshot, &findings), of("P2P", Severity::Warn, 2));
    assert_eq!(findings[0].what, "no P2P access with 3 of the other GPUs");
    refuse(&mut snapshot, 0, 1, 5);
    let both = [of("P2P", Severity::Warn, 2), of("P2P", Severity::Warn, 0)].concat();
    assert_eq!(judged(&snapshot, &Expected::default()), both);
    refuse(&mut snapshot, 0, 3, 5);
    refuse(&mut snapshot, 1, 3, 5);
    assert_eq!(judged(&snapshot, &Expected::default()), of("P2P", Severity::Warn, None));
}

#[test]
fn pairs_over_pcie_count_only_where_they_had_access() {
    let mut snapshot = with_peers(bridged());
    refuse(&mut snapshot, 1, 2, 5);
    refuse(&mut snapshot, 0, 4, 1);
    assert_eq!(judged(&snapshot, &Expected::default()), []);
    let mut known = learned(&snapshot);
    known.known[4].peers_ok = Some(vec![pci(0), pci(1)]);
    assert_eq!(judged(&snapshot, &known), of("P2P", Severity::Warn, 0));
    refuse(&mut snapshot, 2, 3, 6);
    let both = [of("P2P", Severity::Warn, 0), of("P2P", Severity::Warn, 2)].concat();
    assert_eq!(judged(&snapshot, &known), both);
}

#[test]
fn access_that_is_switched_off_unread_in_mig_mode_or_explained_is_not_told() {
    let refused = |status| {
        let mut snapshot = with_peers(switched());
        refuse(&mut snapshot, 0, 1, status);
        snapshot
    };
    assert_eq!(judged(&refused(5), &Expected::default()), of("P2P", Severity::Warn, 0));
    assert_eq!(judged(&refused(4), &Expected::default()), [], "by the driver's settings");
    let mut unread = refused(5);
    for at in 0..2 {
        detail(&mut unread, at).peers.iter_mut().for_each(|peer| peer.write = Reading::NotSupported);
    }
    assert_eq!(judged(&unread, &Expected::default()), []);
    let mut mig = refused(5);
    mig.gpus[1].reading.mig = Reading::Value(true);
    assert_eq!(judged(&mig, &Expected::default()), []);
    let mut off = refused(5);
    take_down(&mut off, 1, 0..17);
    assert_eq!(judged(&off, &learned(&switched())), of("NVLINK_DOWN", Severity::Fail, 1));
}
