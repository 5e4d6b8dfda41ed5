//! Where the programs log: to syslog, to a file if one is named, and to whoever waits for the worker.

use gpuward_core::config::LogLevel;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

type Syslog = syslog::Logger<syslog::LoggerBackend, syslog::Formatter3164>;

/// What every line is copied to.
pub type Copy = fn(&str);

struct Sinks {
    syslog: Option<Syslog>,
    file: Option<File>,
}

struct Logger {
    sinks: Mutex<Sinks>,
    copy: Option<Copy>,
    name: &'static str,
}

/// Starts logging. What cannot be opened is left out and named in the returned text.
pub fn start(name: &'static str, file: Option<&str>, level: LogLevel, copy: Option<Copy>) -> Option<String> {
    let (opened, complaint) = match file.map(|path| open(Path::new(path))) {
        None => (None, None),
        Some(Ok(file)) => (Some(file), None),
        Some(Err(error)) => (None, Some(format!("{error}; logging to syslog only"))),
    };
    let logger = Logger { sinks: Mutex::new(Sinks { syslog: connect(name), file: opened }), copy, name };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(filter(level));
    }
    complaint
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
    }
}

fn open(path: &Path) -> Result<File, crate::EdgeError> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).custom_flags(flags);
    options.open(path).map_err(crate::EdgeError::io("open", path))
}

/// No syslog, no complaint: containers and chroots have none.
fn connect(name: &str) -> Option<Syslog> {
    let formatter = syslog::Formatter3164 {
        facility: syslog::Facility::LOG_DAEMON,
        hostname: None,
        process: name.to_owned(),
        pid: std::process::id(),
    };
    let logger = syslog::unix(formatter).ok()?;
    // A syslog that reads nothing any more must cost lines, not jobs.
    if let syslog::LoggerBackend::Unix(socket) = &logger.backend {
        socket.set_nonblocking(true).ok()?;
    }
    Some(logger)
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string().replace('\n', " ");
        // Whoever waits for us wants to know what is wrong, not what is well.
        if let Some(copy) = self.copy.filter(|_| record.level() <= Level::Warn) {
            copy(&text);
        }
        // A poisoned lock still guards sound sinks: losing a line is the worst that can come of it.
        let mut sinks = self.sinks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sinks.write(record.level(), self.name, &text);
    }

    fn flush(&self) {}
}

impl Sinks {
    fn write(&mut self, level: Level, name: &str, text: &str) {
        if let Some(syslog) = &mut self.syslog {
            let _ = match level {
                Level::Error => syslog.err(text),
                Level::Warn => syslog.warning(text),
                Level::Info => syslog.info(text),
                Level::Debug | Level::Trace => syslog.debug(text),
            };
        }
        if let Some(file) = &mut self.file {
            let word = level.as_str().to_ascii_lowercase();
            let line = format!("{} {name}[{}] {word}: {text}\n", crate::clock::unix_ms(), std::process::id());
            // One write for one line: several programs append to the file.
            let _ = file.write_all(line.as_bytes());
        }
    }
}
