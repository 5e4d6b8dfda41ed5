//! The child that asks the driver.
//!
//! Whatever blocks in here blocks nobody else: the parent counts what came out of the pipe before the deadline. Each
//! GPU is read in a thread of its own, so that a slow or hung one hides no other and eight take as long as one.

use super::message::{Message, Request};
use super::read;
use gpuward_core::model::snapshot::GpuTarget;
use gpuward_core::model::{GpuReading, NodeReading, Reading};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads what `request` asks for and prints it. Only ever in a forked child.
pub(super) fn main(request: &Request) {
    // SAFETY: the child has one thread, so nobody reads the environment meanwhile. The driver's library must see
    // nothing of what a prolog was told.
    unsafe { libc::clearenv() };
    // A memory arena for each thread costs more than these threads will ever wait for each other.
    // SAFETY: mallopt only sets a parameter of the allocator, and no other thread allocates yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let (node, nvml) = open(&request.library);
    say(&Message::Node(node));
    if let Some(nvml) = nvml {
        // Never dropped: nvmlShutdown may block, and the end of the process closes everything.
        let nvml = ManuallyDrop::new(nvml);
        read_all(&nvml, request);
    } else {
        say(&Message::End);
    }
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

/// A thread for each GPU but the last, which this thread reads: a hang here holds nobody but itself. Whoever comes last
/// says that nothing else will come; the ends of the threads are not worth waiting for.
fn read_all(nvml: &Nvml, request: &Request) {
    let Some((last, others)) = request.targets.split_last() else { return say(&Message::End) };
    let left = &AtomicUsize::new(request.targets.len());
    let done = || {
        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
            finish(nvml, request);
        }
    };
    let read = |target: usize, wanted: &GpuTarget| {
        say(&Message::Gpu { target, reading: Box::new(read::gpu(nvml, wanted)) });
        // Told apart from what a prolog needs: one call that hangs then costs the detail only.
        if let Some(detail) = request.detail.then(|| read::more(nvml, wanted, request.deep)).flatten() {
            say(&Message::Detail { target, detail: Box::new(detail) });
        }
        done();
    };
    std::thread::scope(|scope| {
        for (target, wanted) in others.iter().enumerate() {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            // A thread that cannot be started costs its GPU the reading, nothing else.
            if thread.spawn_scoped(scope, move || read(target, wanted)).is_err() {
                let reading = Box::new(GpuReading { handle: Reading::NotRead, ..GpuReading::default() });
                say(&Message::Gpu { target, reading });
                done();
            }
        }
        read(others.len(), last);
    });
}

/// Pairs of GPUs come when each of them has answered alone: a hung one would else silence all.
fn finish(nvml: &Nvml, request: &Request) {
    let targets = request.targets.iter().enumerate().filter(|_| request.detail && request.deep);
    for (target, own) in targets {
        say(&Message::Peers { target, peers: read::peers(nvml, own, &request.targets) });
    }
    say(&Message::End);
}

/// What std gives a thread: NVML's own needs are not published, and memory that is not touched costs nothing.
const STACK_BYTES: usize = 2 * 1024 * 1024;

fn say(message: &Message) {
    let Ok(mut line) = serde_json::to_string(message) else { return };
    line.push('\n');
    let mut out = std::io::stdout().lock();
    // Nobody to tell if the parent is gone; the kernel ends us then.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
