//! Prints what one call costs in the library named by the argument, in nanoseconds: one thread, then eight.

use std::thread;
use std::time::Instant;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

const CALLS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let library = std::env::args_os().nth(1).ok_or("usage: call_cost LIBRARY")?;
    let nvml = Nvml::builder().lib_path(&library).init()?;
    for threads in [1, 8] {
        let device = nvml.device_by_index(0)?;
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..CALLS).all(|_| device.temperature(TemperatureSensor::Gpu).is_ok()));
            }
        });
        println!("{threads} threads: {} ns a call", start.elapsed().as_nanos() / u128::from(CALLS * threads));
    }
    Ok(())
}
