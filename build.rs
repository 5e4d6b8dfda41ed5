//! The build script of src/slurm-sys: finds Slurm's headers and lets bindgen read spank.h.
//!
//! `SLURM_INCLUDE_DIR` names the folder that contains `slurm/spank.h`; without it pkg-config is asked, then
//! /usr/include is looked at. Nothing of Slurm is linked: the plugin takes its symbols from the program that loads it.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// What the plugin calls. Only symbols that every supported release exports: with `-z now` a single missing one means
/// that the plugin is not loaded.
const FUNCTIONS: &str = "spank_(context|get_item|getenv|setenv|option_register)|\
                         slurm_(error|info|verbose|debug|spank_log)";
const TYPES: &str = "spank_(t|f|item|item_t|err_t|context_t|option|opt_cb_f)";
const CONSTANTS: &str = "ESPANK_.*|S_(JOB|STEP|TASK|SLURM|CTX)_.*|SLURM_VERSION_NUMBER|SPANK_OPTION_MAXLEN|\
                         SLURM_(BATCH_SCRIPT|EXTERN_CONT|INTERACTIVE_STEP)|NO_VAL|INFINITE";

fn main() {
    println!("cargo:rerun-if-changed=../../build.rs");
    for variable in ["SLURM_INCLUDE_DIR", "PKG_CONFIG_PATH", "LIBCLANG_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let folder = headers().unwrap_or_else(|sentence| fail(&sentence));
    for header in ["spank.h", "slurm.h", "slurm_errno.h", "slurm_version.h"] {
        println!("cargo:rerun-if-changed={}", folder.join("slurm").join(header).display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_else(|| fail("OUT_DIR is not set: run cargo")));
    generate(&folder, &out.join("slurm.rs")).unwrap_or_else(|sentence| fail(&sentence));
}

fn fail(sentence: &str) -> ! {
    eprintln!("gpuward: {sentence}");
    exit(1);
}

/// The folder that contains slurm/spank.h.
fn headers() -> Result<PathBuf, String> {
    let has = |folder: &PathBuf| folder.join("slurm/spank.h").is_file();
    if let Some(folder) = env::var_os("SLURM_INCLUDE_DIR").map(PathBuf::from) {
        // A wrong variable is told, not worked around: it was set to choose one of several releases.
        let missing = format!("SLURM_INCLUDE_DIR={} has no slurm/spank.h in it", folder.display());
        return Some(folder).filter(has).ok_or(missing);
    }
    let missing = "Slurm's header slurm/spank.h was not found: install libslurm-dev (Debian, Ubuntu) or slurm-devel \
                   (RHEL, SUSE), or set SLURM_INCLUDE_DIR to the folder that contains slurm/spank.h";
    pkg_config()
        .into_iter()
        .chain([PathBuf::from("/usr/include")])
        .find(has)
        .ok_or_else(|| missing.to_owned())
}

/// The include folders that pkg-config names; none where it or slurm.pc is missing, which is usual on Debian.
fn pkg_config() -> Vec<PathBuf> {
    let output = Command::new("pkg-config").args(["--cflags-only-I", "slurm"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().filter_map(|flag| flag.strip_prefix("-I")).map(PathBuf::from).collect()
}

fn generate(folder: &Path, target: &Path) -> Result<(), String> {
    let bindings = bindgen::Builder::default()
        .header_contents("gpuward.h", "#include <slurm/spank.h>\n#include <slurm/slurm.h>\n")
        .clang_arg(format!("-I{}", folder.display()))
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var(CONSTANTS)
        .prepend_enum_name(false)
        .generate_comments(false)
        .use_core();
    // bindgen panics where libclang cannot be loaded; that shall be one sentence, without a backtrace.
    panic::set_hook(Box::new(|_| {}));
    let generated = panic::catch_unwind(AssertUnwindSafe(|| bindings.generate()));
    let _ = panic::take_hook();
    let bindings = generated
        .map_err(|_| {
            "bindgen could not load libclang: install libclang-dev (Debian, Ubuntu) or clang-devel (RHEL, SUSE), or \
             set LIBCLANG_PATH to the folder of libclang.so"
                .to_owned()
        })?
        .map_err(|error| format!("bindgen cannot read {}/slurm/spank.h: {error}", folder.display()))?;
    bindings.write_to_file(target).map_err(|error| format!("cannot write {}: {error}", target.display()))
}
