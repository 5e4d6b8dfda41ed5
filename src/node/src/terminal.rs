//! The terminal that a command writes to.

/// How wide the terminal at standard output is, in columns; `None` where there is none.
pub fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, which lives as long as the call.
    let code = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (code == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
