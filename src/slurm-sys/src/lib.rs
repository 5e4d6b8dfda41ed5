//! Slurm and SPANK bindings, nothing else: what bindgen makes of the installed `slurm/spank.h`.
//!
//! Only what the plugin uses is let through. **Nothing is linked**: `spank_*` and the loggers stay undefined and are
//! found in the program that loads the plugin (srun, sbatch, salloc, slurmd, slurmstepd), so that one object serves
//! every release. A symbol that is missing in one supported release must not be added here: look it up with dlsym.
//!
//! The numbers that the plugin relies on are pinned in `tests/constants.rs`.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(missing_debug_implementations, missing_docs, unused_qualifications)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

include!(concat!(env!("OUT_DIR"), "/slurm.rs"));
