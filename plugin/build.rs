//! Link flags of spank_gpuward.so.
#![allow(clippy::disallowed_macros, reason = "cargo reads a build script's standard output")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Slurm loads and unloads a plugin just to look at it. Destructors of thread-local data and the panic hook must
    // outlive that, so the object stays mapped (crashes otherwise: rust-lang/rust#91979, #59629).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // rustc's own `-z now` stays: with it a symbol that this Slurm lacks means that the plugin is not loaded, without
    // it the first call would end the process that holds the job.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,spank_gpuward.so");
}
