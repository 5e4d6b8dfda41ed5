//! Xid events.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::Installed;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::struct_wrappers::event::EventData;

/// UUID and Xid of the next event; none where the time is over.
fn next(set: &EventSet<'_>, timeout_ms: u32) -> Option<(String, u64)> {
    match set.wait(timeout_ms) {
        Ok(EventData { device, event_data: Some(XidError::Value(xid)), .. }) => {
            Some((device.uuid().unwrap(), xid))
        }
        Err(NvmlError::Timeout) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn registered_gpus_tell_of_xids_in_order_and_once() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let uuid = |slot: usize| fake.machine.gpus[slot].uuid.clone();
    let events = r#"
        event = [
            { gpu = 1, xid = 94, at_boottime_ms = 60_000 },
            { gpu = 1, xid = 79, at_boottime_ms = 50_000 },
            { gpu = 2, xid = 31, at_boottime_ms = 50_000 },
            { gpu = 1, xid = 13, at_boottime_ms = 10_000 },
        ]
    "#;
    let at = |ms: u64| fake.faults(&format!("frozen_boottime_ms = {ms}\n{events}"));
    at(40_000);
    let device = nvml.device_by_index(1).unwrap();
    let set =
        device.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set().unwrap()).unwrap();
    assert_eq!(next(&set, 0), None, "Xid 13 was before, 31 is another GPU's, the others are to come");
    at(70_000);
    assert_eq!(next(&set, 0), Some((uuid(1), 79)));
    assert_eq!(next(&set, 0), Some((uuid(1), 94)));
    assert_eq!(next(&set, 0), None);
    // Each set is told for itself.
    at(40_000);
    let other = nvml.create_event_set().unwrap();
    let other =
        nvml.device_by_index(2).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, other).unwrap();
    at(70_000);
    assert_eq!(next(&other, 0), Some((uuid(2), 31)));
}

#[test]
fn a_wait_without_an_event_ends_with_timeout() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let set = nvml.create_event_set().unwrap();
    let set = nvml.device_by_index(0).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
    assert!(matches!(set.wait(30), Err(NvmlError::Timeout)));
}

#[test]
fn an_event_ends_a_wait_that_is_under_way_and_other_calls_go_on_meanwhile() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = nvml.device_by_index(3).unwrap();
    fake.faults("frozen_boottime_ms = 1000");
    let set =
        device.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set().unwrap()).unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(next(&set, 60_000)).unwrap());
        assert!(device.serial().is_ok());
        fake.faults("frozen_boottime_ms = 1001\nevent = [{ gpu = 3, xid = 119, at_boottime_ms = 1001 }]");
        let told = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(told, Some((fake.machine.gpus[3].uuid.clone(), 119)));
    });
}

#[test]
fn kinds_that_a_gpu_does_not_have_are_refused() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    let supported = device.supported_event_types().unwrap();
    assert!(
        supported.contains(EventTypes::CRITICAL_XID_ERROR) && !supported.contains(EventTypes::CLOCK_CHANGE)
    );
    let refused = device.register_events(EventTypes::CLOCK_CHANGE, nvml.create_event_set().unwrap());
    assert!(refused.is_err());
}

#[test]
fn a_wait_ends_when_a_registered_gpu_is_lost_and_tells_its_xid_first() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    fake.faults("frozen_boottime_ms = 1000");
    let registered = |index: u32| {
        let set = nvml.create_event_set().unwrap();
        nvml.device_by_index(index).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap()
    };
    let (sick, other) = (registered(3), registered(2));
    fake.faults(
        "frozen_boottime_ms = 1001\nlost = [{ gpu = 3 }]\nevent = [{ gpu = 3, xid = 79, at_boottime_ms = 1001 }]",
    );
    let told = sick.wait(0).unwrap();
    assert!(matches!(told.event_data, Some(XidError::Value(79))), "{told:?}");
    // No UUID is asked for: a lost GPU would not tell.
    assert!(matches!(sick.wait(0), Err(NvmlError::GpuLost)));
    assert_eq!(next(&other, 0), None);
}
