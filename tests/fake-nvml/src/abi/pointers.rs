//! Pointers that C callers hand in. Only C can make these types (their fields are private and nothing here
//! constructs them), so their promise is NVML's own contract: null, or valid for what the function documents.

use std::ffi::{CStr, c_char};

use crate::code::Code;
use crate::engine::Answer;

/// Where one value goes.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes the value; a null pointer is an invalid argument.
    pub(super) fn put(self, value: T) -> Answer<()> {
        self.given()?;
        // SAFETY: not null, so by NVML's contract room for one T of the caller, not in use elsewhere during the call.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads what the caller put there: sizes, version words.
    pub(super) fn get(self) -> Answer<T> {
        self.given()?;
        // SAFETY: not null, so by NVML's contract a T that the caller has filled in.
        Ok(unsafe { self.0.read() })
    }

    /// Whether there is a pointer at all.
    pub(super) fn given(self) -> Answer<()> {
        if self.0.is_null() { Err(Code::INVALID_ARGUMENT) } else { Ok(()) }
    }

    /// Fills a list of which the caller states the room, after telling the full length, as NVML's lists do:
    /// too little room is "insufficient size", and no room at all is how the length is asked for.
    pub(super) fn put_list(self, count: Out<u32>, items: &[T]) -> Answer<()> {
        let room = count.get()?;
        let length = u32::try_from(items.len()).map_err(|_| Code::UNKNOWN)?;
        count.put(length)?;
        if length == 0 {
            return Ok(());
        }
        if room < length {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        self.fill(items)
    }

    /// Fills the first places of an array that has at least as many.
    pub(super) fn fill(self, items: &[T]) -> Answer<()> {
        self.given()?;
        // SAFETY: not null, and the callers of `fill` have compared the stated room with the number of items.
        unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), self.0, items.len()) };
        Ok(())
    }

    /// The same place seen as another type: a versioned struct by its version word, or the other way round.
    pub(super) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The place behind this value, where an array follows a head.
    pub(super) fn after<U>(self) -> Out<U> {
        Out(self.0.wrapping_add(1).cast())
    }

    /// Fills each of `count` values from its first words (`H`), the only ones that the caller has filled in.
    pub(super) fn fill_by_head<H: Copy>(self, count: usize, make: impl Fn(H) -> T) -> Answer<()> {
        self.given()?;
        for i in 0..count {
            // SAFETY: the caller states that there are `count` values, and `i` is below that.
            let place = unsafe { self.0.add(i) };
            // SAFETY: a place inside the caller's array whose first words the caller has filled in.
            let head = unsafe { place.cast::<H>().read() };
            // SAFETY: the same place; arrays that NVML fills are writable.
            unsafe { place.write(make(head)) };
        }
        Ok(())
    }
}

/// Where a text goes; the room is stated beside it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct OutText(*mut c_char);

impl OutText {
    /// Writes a text and its NUL. Too little room is "insufficient size", and nothing is written.
    pub(super) fn put(self, room: u32, text: &str) -> Answer<()> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if room as usize <= text.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let bytes = text.as_bytes();
        // SAFETY: not null, and the caller stated more room than the text has bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast::<u8>(), bytes.len()) };
        // SAFETY: the room is at least one more than the length.
        let end = unsafe { self.0.add(bytes.len()) };
        // SAFETY: inside the room, see above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A C string of the caller.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct InText(*const c_char);

impl InText {
    /// The text; null and other than UTF-8 are invalid arguments.
    pub(super) fn get(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so by NVML's contract a C string that stays during the call; `self` lives no longer.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::INVALID_ARGUMENT)
    }
}

/// `nvmlDevice_t`: a number dressed as a pointer, never followed by anybody.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(*mut std::ffi::c_void);

/// Marks a handle as ours, so that garbage is told from a handle.
const MARK: usize = 0x6770_0000;
const MIGS_PER_GPU: usize = 32;

impl Handle {
    /// The handle of a GPU, or of its MIG device at `mig`.
    pub(super) fn new(slot: u32, mig: Option<usize>) -> Self {
        let number = MARK + slot as usize * MIGS_PER_GPU + mig.map_or(0, |mig| mig + 1);
        // Sixteen-fold so that it looks aligned to whoever checks.
        Self(std::ptr::without_provenance_mut(number * 16))
    }

    /// Slot, and place in the list of MIG devices.
    pub(super) fn parts(self) -> Answer<(u32, Option<usize>)> {
        let address = self.0.addr();
        let number = (address / 16).checked_sub(MARK).filter(|_| address % 16 == 0);
        let number = number.ok_or(Code::INVALID_ARGUMENT)?;
        let slot = u32::try_from(number / MIGS_PER_GPU).map_err(|_| Code::INVALID_ARGUMENT)?;
        Ok((slot, (number % MIGS_PER_GPU).checked_sub(1)))
    }
}

/// `nvmlGpmSample_t` or `nvmlEventSet_t`: a number dressed as a pointer, as [`Handle`] is.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(*mut std::ffi::c_void);

impl Ticket {
    pub(super) fn new(number: usize) -> Self {
        Self(std::ptr::without_provenance_mut(number * 16))
    }

    pub(super) fn number(self) -> usize {
        self.0.addr() / 16
    }
}
