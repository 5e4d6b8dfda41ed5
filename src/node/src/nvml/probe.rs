//! The child that asks the driver.
//!
//! Whatever blocks in here blocks nobody else: the parent counts what came out of the pipe before the deadline. Each
//! GPU has a thread of its own, so that a slow or hung one hides no other and eight take as long as one.

use super::message::{Message, Request};
use super::read;
use crate::process::die_with_parent;
use gpuward_core::model::{GpuReading, NodeReading, Reading};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::io::Write;
use std::mem::ManuallyDrop;

/// Runs the probe for the request in `text`; never returns an error, since its answer is what it printed.
pub fn main(text: &str) {
    if !die_with_parent() {
        return;
    }
    let Ok(request) = serde_json::from_str::<Request>(text) else { return };
    let (node, nvml) = open(&request.library);
    say(&Message::Node(node));
    if let Some(nvml) = nvml {
        // Never dropped: nvmlShutdown may block, and the end of the process closes everything.
        let nvml = ManuallyDrop::new(nvml);
        read_all(&nvml, &request);
    }
    say(&Message::End);
}

fn open(library: &str) -> (NodeReading, Option<Nvml>) {
    let mut node = NodeReading::default();
    match Nvml::builder().lib_path(OsStr::new(library)).init() {
        Ok(nvml) => {
            node.nvml = Reading::Value(());
            node.driver_version = read::reading(nvml.sys_driver_version());
            node.nvml_version = read::reading(nvml.sys_nvml_version());
            node.gpu_count = read::reading(nvml.device_count());
            (node, Some(nvml))
        }
        Err(NvmlError::LibloadingError(error)) => {
            node.library_error = Some(error.to_string());
            node.nvml = Reading::NotRead;
            (node, None)
        }
        Err(error) => {
            node.nvml = read::reading(Err::<(), _>(error));
            (node, None)
        }
    }
}

fn read_all(nvml: &Nvml, request: &Request) {
    std::thread::scope(|scope| {
        for (target, wanted) in request.targets.iter().enumerate() {
            let read_one = move || {
                let reading = Box::new(read::gpu(nvml, wanted));
                say(&Message::Gpu { target, reading });
            };
            // A thread that cannot be started costs its GPU the reading, nothing else.
            let started = std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, read_one);
            if started.is_err() {
                let reading = GpuReading { handle: Reading::NotRead, ..GpuReading::default() };
                say(&Message::Gpu { target, reading: Box::new(reading) });
            }
        }
    });
}

fn say(message: &Message) {
    let Ok(mut line) = serde_json::to_string(message) else { return };
    line.push('\n');
    let mut out = std::io::stdout().lock();
    // Nobody to tell if the parent is gone; the kernel ends us then.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
