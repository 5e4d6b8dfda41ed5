//! `gpuward xid`: what the XIDs, SXids and driver texts in a kernel log mean.

use crate::report::Table;
use gpuward_core::health::action::Action;
use gpuward_core::health::kernel_log::export;
use gpuward_core::health::kernel_log::lines::{Line, Reader};
use gpuward_core::health::kernel_log::open::{Seen, SxidEvent, XidEvent};
use gpuward_core::health::kernel_log::{Event, EventCode, What};
use gpuward_core::health::overrides::Overrides;
use gpuward_core::health::{sxid, xid};
use gpuward_core::text::escape;
use gpuward_node::config;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::process::ExitCode;

/// Reads kernel-log text from standard input and prints one JSON object for each event.
///
/// Takes the output of dmesg (also -T, -x, -r), journalctl -k (also -o cat and -o export), syslog files and /dev/kmsg.
/// Needs no GPU, no root and no configuration: `dmesg | gpuward xid --table`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print a table for people.
    #[arg(long)]
    table: bool,
    /// Tell the same fault of the same GPU and process once, with a count.
    #[arg(long)]
    fold: bool,
    /// Version of the driver, where the log does not hold the line of its loading: some numbers changed their meaning.
    #[arg(long, value_name = "VERSION")]
    driver: Option<String>,
    /// A gpuward.toml whose own actions go before the catalogue's.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// So many different events are told apart; a longer log is told in pieces.
const MAX_FOLDED: usize = 10_000;

/// An export that is longer is cut off: its binary values need it in one piece.
const MAX_EXPORT_BYTES: u64 = 1 << 30;

/// Decodes standard input.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let overrides = match &args.config {
        Some(path) => config::overrides(&config::read_whole(path).map_err(|error| error.to_string())?).0,
        None => Overrides::default(),
    };
    let branch = args.driver.as_deref().map(branch_of).transpose()?;
    let mut printer = Printer { args, overrides, branch, told: Vec::new(), places: HashMap::new() };
    let mut input = std::io::stdin().lock();
    let start = input.fill_buf().map_err(unreadable)?;
    let mut reader = Reader::default();
    if export::is_export(start) {
        let mut bytes = Vec::new();
        input.take(MAX_EXPORT_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        let mut entries = Vec::new();
        export::read(&bytes, |entry| entries.push(entry));
        for entry in entries {
            // In the form of /dev/kmsg: of all forms the one that nothing in a message can be mistaken for.
            printer.take(reader.feed(&format!("6,0,{},-;{}", entry.usec, entry.message)))?;
        }
    } else {
        for line in input.split(b'\n') {
            printer.take(reader.feed(&String::from_utf8_lossy(&line.map_err(unreadable)?)))?;
        }
    }
    printer.take(reader.end())?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot read standard input: {error}")
}

fn branch_of(version: &str) -> Result<u32, String> {
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    major.ok_or_else(|| format!("--driver '{}': a version like 570.124.06 is wanted", escape(version, 40)))
}

struct Printer<'a> {
    args: &'a Args,
    overrides: Overrides,
    branch: Option<u32>,
    told: Vec<Told>,
    /// Where in `told` an event of this key stands.
    places: HashMap<Key, usize>,
}

/// Code and meaning, process, device: what counts as the same fault.
type Key = (String, Option<u32>, Option<String>);

/// One event as it is told.
struct Told {
    key: Key,
    count: u64,
    last: Option<String>,
    /// In the order in which they are printed.
    fields: Vec<(&'static str, Value)>,
}

impl Told {
    fn text(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(known, _)| *known == name);
        field.and_then(|(_, value)| value.as_str()).unwrap_or("-")
    }
}

/// What is known about a number or a text.
#[derive(Default)]
struct LookedUp {
    /// The finding's code; `None` for a text that makes no finding of its own.
    code: Option<String>,
    meaning: String,
    class: &'static str,
    action: Option<Action>,
    /// NVIDIA's buckets for what to do at once and what to look into.
    nvidia: Option<String>,
    notes: Option<&'static str>,
    /// Where meaning and action come from.
    source: String,
}

impl Printer<'_> {
    fn take(&mut self, lines: impl IntoIterator<Item = Line>) -> Result<(), String> {
        for line in lines {
            if let Some(version) = line.event.detail("driver_version") {
                self.branch = branch_of(version).ok().or(self.branch);
            }
            let told = self.tell(&line);
            let known = self.places.get(&told.key).and_then(|&at| self.told.get_mut(at));
            match known {
                Some(known) => {
                    known.count += 1;
                    known.last = told.last;
                }
                None => {
                    if self.args.fold {
                        self.places.insert(told.key.clone(), self.told.len());
                    }
                    self.told.push(told);
                }
            }
            if !(self.args.fold || self.args.table) || self.told.len() >= MAX_FOLDED {
                self.finish()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let told = std::mem::take(&mut self.told);
        self.places.clear();
        if self.args.table {
            if told.is_empty() {
                return super::print("no XID, SXid or other event of a GPU\n");
            }
            return super::print(&table(&told));
        }
        for told in told {
            super::print(&object(&told, self.args.fold))?;
        }
        Ok(())
    }

    fn tell(&self, line: &Line) -> Told {
        let event = &line.event;
        let LookedUp { code, meaning, class, action: by_row, nvidia, notes, source } = self.look_up(event);
        let site = match event.code {
            EventCode::Xid(number) => self.overrides.xid.get(&number),
            EventCode::Sxid(number) => self.overrides.sxid.get(&number),
            EventCode::None => None,
        };
        let action = site.copied().or(by_row);
        let source = site.map_or(source, |_| "gpuward.toml".to_owned());
        let pci = event.pci.map(|pci| pci.to_string());
        // A lost GPU is told in several ways; the others are different faults.
        let what = event.what.filter(|what| *what != What::GpuLost).map_or("", What::word);
        let kind = format!("{} {what} {}", code.as_deref().unwrap_or("-"), action.map_or("", Action::word));
        let key = (kind, event.pid, pci.clone());
        let mut fields = Vec::new();
        let mut put = |name: &'static str, value: Value| fields.push((name, value));
        put("time", json!(line.time));
        put("code", json!(code));
        put("pci", json!(pci));
        put("gi", number(event.detail("gi")));
        put("ci", number(event.detail("ci")));
        put("pid", json!(event.pid));
        put("process", json!(event.process));
        put("event", json!(event.what.map(What::word)));
        put("meaning", json!(meaning));
        put("class", json!(class));
        put("action", json!(action.map(Action::word)));
        put("remedy", json!(action.map(Action::in_words)));
        put("nvidia", json!(nvidia));
        put("notes", json!(notes.filter(|notes| *notes != "-")));
        put("source", json!(source));
        for (name, value) in event.details.iter().filter(|(name, _)| !matches!(*name, "gi" | "ci" | "hint")) {
            put(name, json!(value));
        }
        put("message", json!(event.message));
        Told { key, count: 1, last: line.time.clone(), fields }
    }

    fn look_up(&self, event: &Event) -> LookedUp {
        match event.code {
            EventCode::Xid(number) => self.look_up_xid(number, event),
            EventCode::Sxid(number) => self.look_up_sxid(number, event),
            EventCode::None => look_up_text(event),
        }
    }

    fn look_up_xid(&self, number: u32, event: &Event) -> LookedUp {
        let row = xid::lookup(number);
        let judged = XidEvent::of(event, Seen::default()).map(|event| event.action(self.branch));
        let (action, why) = judged.unwrap_or((Action::Warn, None));
        let mut meaning = row.map_or_else(|| unknown("XID", number), |row| row.meaning.to_owned());
        let what = event.what.filter(|what| !matches!(what, What::GpuLost | What::UnknownCode));
        for more in what.map(|what| what.meaning().to_owned()).into_iter().chain(why) {
            meaning.push_str(&format!("; {more}"));
        }
        LookedUp {
            code: Some(format!("XID{number}")),
            meaning,
            class: row.map_or("unknown", |row| row.class),
            action: Some(action),
            nvidia: row.map(|row| format!("{}, then {}", row.nvidia_immediate, row.nvidia_investigate)),
            notes: row.map(|row| row.notes),
            source: row.map_or_else(no_row, |row| format!("xid catalogue, row {number} ({})", row.source)),
        }
    }

    fn look_up_sxid(&self, number: u32, event: &Event) -> LookedUp {
        let row = sxid::lookup(number, self.branch);
        let is_ambiguous = (28_000..30_000).contains(&number) && self.branch.is_none();
        let meaning = match row {
            _ if event.what == Some(What::SxidData) => What::SxidData.meaning().to_owned(),
            Some(row) => row.meaning.to_owned(),
            None if is_ambiguous => {
                "changed its meaning with driver 550: name the driver's version with --driver".to_owned()
            }
            None => unknown("SXid", number),
        };
        LookedUp {
            code: Some(format!("SXID{number}")),
            meaning,
            class: row.map_or("unknown", |row| row.class),
            action: SxidEvent::of(event, Seen::default()).map(|event| event.action(self.branch)),
            nvidia: None,
            notes: row.map(|row| row.notes),
            source: row
                .map_or_else(no_row, |row| format!("sxid catalogue, row {} ({})", row.sxid, row.source)),
        }
    }
}

fn look_up_text(event: &Event) -> LookedUp {
    let Some(what) = event.what else { return LookedUp::default() };
    let is_fatal = event.detail("aer") == Some("fatal");
    LookedUp {
        code: what.code().map(ToOwned::to_owned),
        meaning: what.meaning().to_owned(),
        class: "text",
        action: Some(if is_fatal { Action::DrainReboot } else { what.action() }),
        source: "text of the driver or the kernel".to_owned(),
        ..LookedUp::default()
    }
}

fn no_row() -> String {
    "no catalogue row".to_owned()
}

fn unknown(family: &str, number: u32) -> String {
    format!("{family} {number} is not in the catalogue")
}

fn number(text: Option<&str>) -> Value {
    json!(text.and_then(|text| text.parse::<u32>().ok()))
}

/// One line of JSON, with what matters most in front.
fn object(told: &Told, is_folded: bool) -> String {
    let field = |(name, value): &(&str, Value)| format!("\"{name}\":{value}");
    let mut fields: Vec<String> = told.fields.iter().map(field).collect();
    if is_folded {
        fields.push(field(&("count", json!(told.count))));
        fields.push(field(&("last_time", json!(told.last))));
    }
    format!("{{{}}}\n", fields.join(","))
}

fn table(told: &[Told]) -> String {
    let mut table = Table::new(&["TIME", "CODE", "PCI", "PROCESS", "COUNT", "ACTION", "MEANING"]);
    for told in told {
        let text = |name| told.text(name);
        let process = match told.key.1 {
            Some(pid) => format!("{pid} {}", escape(text("process"), 20)),
            None => "-".to_owned(),
        };
        table.row([
            escape(text("time"), 40),
            if text("code") == "-" { text("event").to_owned() } else { text("code").to_owned() },
            text("pci").to_owned(),
            process,
            told.count.to_string(),
            text("action").to_owned(),
            escape(text("meaning"), 100),
        ]);
    }
    table.to_string()
}
