//! Panics on demand, for the tests (feature `fault-injection`); in every other build these functions are empty.
//!
//! `panic=HOOK` in plugstack.conf makes that hook panic (`init`, `option`, `init_post_opt`, `task_init`);
//! `panic=HOOK:drop` with a payload whose destructor panics too. The constructor sees no arguments, so it looks for the
//! variable `GPUWARD_PANIC_CONSTRUCTOR`.

#[cfg(feature = "fault-injection")]
pub use injected::{inject, inject_constructor, inject_option};

#[cfg(not(feature = "fault-injection"))]
pub use nothing::{inject, inject_constructor, inject_option};

#[cfg(not(feature = "fault-injection"))]
mod nothing {
    use crate::guard::Hook;
    use crate::items::Call;

    pub fn inject(_: Hook, _: &Call) {}
    pub fn inject_option() {}
    pub fn inject_constructor() {}
}

#[cfg(feature = "fault-injection")]
#[allow(clippy::panic, reason = "that is what it is for")]
mod injected {
    use crate::guard::Hook;
    use crate::items::Call;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// The callback of the option gets no arguments: 1 when it shall panic, 2 with a payload that panics.
    static OPTION: AtomicU8 = AtomicU8::new(0);

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the payload's destructor");
        }
    }

    fn blow(with_bomb: bool) -> ! {
        if with_bomb {
            std::panic::panic_any(Bomb);
        }
        panic!("injected\nfault");
    }

    fn wanted(call: &Call, hook: Hook) -> Option<bool> {
        call.args().iter().find_map(|arg| match arg.strip_prefix("panic=")?.strip_prefix(hook.name())? {
            "" => Some(false),
            ":drop" => Some(true),
            _ => None,
        })
    }

    pub fn inject(hook: Hook, call: &Call) {
        let option = wanted(call, Hook::Option).map_or(0, |with_bomb| u8::from(with_bomb) + 1);
        OPTION.store(option, Ordering::Relaxed);
        if let Some(with_bomb) = wanted(call, hook) {
            blow(with_bomb);
        }
    }

    pub fn inject_option() {
        match OPTION.load(Ordering::Relaxed) {
            0 => {}
            code => blow(code == 2),
        }
    }

    /// Unwinds without the panic hook, which is not installed yet.
    pub fn inject_constructor() {
        // SAFETY: the name is a C string; nobody changes the environment while the loader runs constructors.
        if !unsafe { libc::getenv(c"GPUWARD_PANIC_CONSTRUCTOR".as_ptr()) }.is_null() {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }
}
