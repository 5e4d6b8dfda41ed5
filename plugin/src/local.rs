//! srun: only the option is registered. Slurm calls its callback with what the user typed.
//!
//! Neither the configuration nor the plugstack arguments are looked at here: what is wrong with them is the admin's
//! business and belongs into the node's log, not on a user's terminal.

use crate::guard::Hook;
use crate::items::Call;
use crate::{fault, options};

/// One hook in srun.
pub fn enter(hook: Hook, call: &Call) -> i32 {
    if hook == Hook::Init {
        // Before all else: a command that does not know the option refuses it.
        options::register(call.spank);
    }
    fault::inject(hook, call);
    0
}
