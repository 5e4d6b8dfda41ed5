//! `gpuward status`: what this node should be, and what it is.

use crate::report::{Progress, Style, Table, moment};
use crate::site::NodeArgs;
use gpuward_core::health::known::{Change, How, KnownFile, changes};
use gpuward_core::health::{Expected, KnownGpu, Subject};
use gpuward_core::model::PciAddress;
use gpuward_core::model::snapshot::ProbedGpu;
use gpuward_node::flow::{Inspection, Look, Site, accept, inspect_node};
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

/// Shows what this node should be and what it is, GPU by GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Take the node as it is now for what it should be; says first what changes. Needs root.
    #[arg(long)]
    accept: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the state, and accepts it where that was asked for.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    if args.accept && !is_root() {
        return Err("--accept needs root: what the node should be is kept in root's files".into());
    }
    let site = args.node.site()?;
    let mut progress = Progress::new();
    // What is accepted is looked at as deep as can be: what was not read cannot be missed later.
    let wanted = Inspection { deep: args.accept, gpus: &[] };
    let look = inspect_node(&site, wanted, &mut |answered, all| progress.told(answered, all));
    drop(progress);
    let look = look.map_err(|error| error.to_string())?;
    let page = Page::of(&site, &look);
    if !args.accept {
        if args.json {
            return super::print_json(&page.json());
        }
        super::print(&page.text(Style::of_stdout()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.json {
        super::print(&page.changes_text())?;
    }
    let file = accept(&site, &look).map_err(|error| format!("nothing is changed: {error}"))?;
    if args.json {
        return super::print_json(&serde_json::json!({ "changes": page.changes, "known": file }));
    }
    super::print(&format!(
        "accepted: these {} GPUs are what this node should be from now on\n",
        file.gpus.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The owner of one's own process in /proc is its effective user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

struct Page<'a> {
    site: &'a Site,
    look: &'a Look,
    known: Option<&'a KnownFile>,
    now: Vec<KnownGpu>,
    changes: Vec<Change>,
}

impl<'a> Page<'a> {
    fn of(site: &'a Site, look: &'a Look) -> Page<'a> {
        let known = look.known.as_ref().ok().and_then(Option::as_ref);
        let now = gpuward_core::health::known::now(&look.snapshot);
        let before = known.map(KnownFile::seen).unwrap_or_default();
        let mut changes = changes(&before, &now);
        // A GPU that does not answer is no change that anybody could accept.
        let there = |pci| look.snapshot.gpus.iter().any(|gpu| gpu.pci() == Some(pci));
        changes.retain(|change| change.now.is_some() || !there(change.pci));
        Page { site, look, known, changes, now: now.gpus }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "gpuward_status": 1,
            "node": self.site.env.node,
            "mode": self.site.config.health.mode.word(),
            "expected": self.look.expected,
            "known": self.known,
            "known_error": self.look.known.as_ref().err().map(ToString::to_string),
            "gpus": self.look.snapshot.gpus.iter().map(Subject::of).collect::<Vec<_>>(),
            "now": self.now,
            "changes": if self.known.is_some() { &self.changes[..] } else { &[] },
        })
    }

    fn text(&self, style: Style) -> String {
        let node = gpuward_core::text::escape(&self.site.env.node, 64);
        let gpus = self.look.snapshot.gpus.len();
        let mut out = format!("node {node}: {gpus} GPUs, mode {}\n", self.site.config.health.mode.word());
        let _ = writeln!(out, "should be: {}", should_be(&self.look.expected));
        let _ = writeln!(out, "known: {}", self.known_text());
        let _ = write!(out, "\n{}", self.table(style));
        if self.known.is_some() && !self.changes.is_empty() {
            out.push_str("\nnot as known ('gpuward status --accept' makes it the known state):\n");
            out.push_str(&self.changes_text());
        }
        out
    }

    fn known_text(&self) -> String {
        match (&self.look.known, self.known) {
            (Err(error), _) => error.to_string(),
            (_, Some(file)) => {
                let how = match file.how {
                    How::Learned => "learned from a clean check",
                    How::Accepted => "accepted by an admin",
                };
                format!("{} GPUs, {how} on {} UTC", file.gpus.len(), moment(file.unix_ms))
            }
            (Ok(_), None) => "nothing yet; the first clean 'gpuward check' is remembered".to_owned(),
        }
    }

    fn table(&self, style: Style) -> Table {
        let headings = ["GPU", "PCI", "UUID", "MODEL", "NVLINKS", "LANES", "STATE"];
        let mut table = Table::new(&headings).fitting(style.width, &[3, 6]);
        for gpu in &self.look.snapshot.gpus {
            table.row(self.row(gpu));
        }
        let gone =
            |known: &&KnownGpu| !self.look.snapshot.gpus.iter().any(|gpu| gpu.pci() == Some(known.pci));
        for known in self.known.iter().flat_map(|file| &file.gpus).filter(gone) {
            table.row(cells(None, known, "gone".into()));
        }
        table
    }

    fn row(&self, gpu: &ProbedGpu) -> [String; 7] {
        let slot = gpu.target.minor.or_else(|| gpu.reading.minor.value().copied());
        let Some(now) = self.now.iter().find(|now| Some(now.pci) == gpu.pci()) else {
            let pci = gpu.pci().map_or_else(String::new, |pci| pci.to_string());
            let uuid = gpu.uuid().map_or_else(String::new, |uuid| uuid.short().to_owned());
            let none = String::new;
            return [number(slot), pci, uuid, none(), none(), none(), "does not answer".into()];
        };
        cells(slot, now, self.state_of(now.pci))
    }

    fn state_of(&self, pci: PciAddress) -> String {
        if self.known.is_none() {
            return "not known yet".into();
        }
        let differs: Vec<&Change> = self.changes.iter().filter(|change| change.pci == pci).collect();
        match differs[..] {
            [] => "as known".into(),
            [Change { what: "GPU", before: None, .. }] => "new".into(),
            _ => format!("differs: {}", differs.iter().map(|one| one.what).collect::<Vec<_>>().join(", ")),
        }
    }

    /// One line for each thing that is not as it was.
    fn changes_text(&self) -> String {
        if self.known.is_none() {
            return "nothing was known before\n".into();
        }
        if self.changes.is_empty() {
            return "nothing changes\n".into();
        }
        let mut table = Table::new(&["PCI", "WHAT", "KNOWN", "NOW"]);
        for change in &self.changes {
            let told = |value: &Option<String>| {
                value
                    .as_deref()
                    .map_or_else(|| "none".to_owned(), |text| gpuward_core::text::escape(text, 60))
            };
            table.row([
                change.pci.to_string(),
                change.what.to_owned(),
                told(&change.before),
                told(&change.now),
            ]);
        }
        table.to_string()
    }
}

fn cells(slot: Option<u32>, gpu: &KnownGpu, state: String) -> [String; 7] {
    [
        number(slot),
        gpu.pci.to_string(),
        gpu.uuid.short().to_owned(),
        gpu.model.as_deref().map_or_else(String::new, |model| gpuward_core::text::escape(model, 60)),
        number(gpu.nvlinks),
        number(gpu.pcie_width),
        state,
    ]
}

fn number(value: Option<u32>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// What configuration, Slurm and memory say, in one line.
fn should_be(expected: &Expected) -> String {
    let mut all = Vec::new();
    if let Some((count, source)) = &expected.gpu_count {
        all.push(format!("{count} GPUs ({source})"));
    }
    if let Some((model, source)) = &expected.model {
        all.push(format!("model {} ({source})", gpuward_core::text::escape(model, 60)));
    }
    let numbers = [
        ("NVLinks", &expected.nvlinks, 1),
        ("PCIe lanes", &expected.pcie_width, 1),
        ("W power limit", &expected.power_limit_mw, 1000),
    ];
    for (what, value, unit) in numbers {
        if let Some((value, source)) = value {
            all.push(format!("{} {what} ({source})", value / unit));
        }
    }
    if let Some((profiles, source)) = &expected.mig {
        let list = if profiles.is_empty() { "off".to_owned() } else { profiles.join("+") };
        all.push(format!("MIG {list} ({source})"));
    }
    if let Some((mode, source)) = &expected.compute_mode {
        let word = gpuward_core::config::ComputeMode::word_of(*mode).unwrap_or("-");
        all.push(format!("compute mode {word} ({source})"));
    }
    if all.is_empty() {
        "nothing says so: neither gpuward.toml nor gres.conf, and nothing is known".into()
    } else {
        all.join(", ")
    }
}
