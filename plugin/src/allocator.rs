//! sbatch, salloc and scrontab: only the option is registered, as in srun.
//!
//! Without it these commands would refuse `--gpuward`. Slurm carries the value into the job's environment, so that it
//! reaches the batch step and every srun inside the script.

use crate::guard::Hook;
use crate::items::Call;
use crate::{fault, options};

/// One hook in sbatch, salloc or scrontab.
pub fn enter(hook: Hook, call: &Call) -> i32 {
    if hook == Hook::Init {
        // Before all else: a command that does not know the option refuses it.
        options::register(call.spank);
    }
    fault::inject(hook, call);
    0
}
