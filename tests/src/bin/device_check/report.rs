//! Puts together what the steps left in the working folder: one table, for the terminal and for docs/measured.md.

use super::calls::{Line, Timing, Whole};
use super::jobs::Jobs;
use super::nvml::word;
use super::rows::{self, Compared, Row, Said, Verdict};
use super::trials::{FieldAnswer, MetricAnswer, NEW, OLD};
use gpuward_core::model::SnapshotFile;
use std::fs;
use std::path::Path;

/// Rounds of comparing, at most.
const ROUNDS: [&str; 3] = ["1", "2", "3"];

/// One round's three readings.
struct Round {
    before: Said,
    second: Said,
    after: Said,
    file: SnapshotFile,
}

impl Round {
    fn read(work: &Path, round: &str) -> Option<Round> {
        let (before, file) = rows::snapshot(&work.join(format!("before-{round}")))?;
        let (after, _) = rows::snapshot(&work.join(format!("after-{round}")))?;
        let second = rows::second(&work.join(format!("second-{round}")))?;
        Some(Round { before, second, after, file })
    }

    fn compared(&self) -> Vec<Compared> {
        rows::compared(&self.before, &self.second, &self.after)
    }
}

/// True where a value differs that may just have moved.
pub fn moved(work: &Path, round: &str) -> bool {
    Round::read(work, round).is_some_and(|round| rows::any_differs(&round.compared()))
}

/// Prints the report, writes it to `out`, and returns the exit code.
pub fn run(work: &Path, out: &Path) -> Result<u8, String> {
    let steps = steps(work);
    let calls = calls(work);
    let snapshot = rows::snapshot(&work.join("before-1"));
    let gpus = calls.iter().filter(|line| matches!(line, Line::Gpu(_))).count();
    if gpus == 0 && snapshot.as_ref().is_none_or(|(said, _)| said.gpus.is_empty()) {
        print!("{}", nothing(&steps, &calls, snapshot.as_ref()));
        return Ok(2);
    }
    let mut all = step_rows(&steps);
    all.extend(values(work, snapshot.as_ref(), gpus));
    all.extend(of_jobs(work));
    all.extend(of_fake(work));
    all.extend(trials(&calls, snapshot.as_ref().map(|(said, _)| said)));
    all.extend(costs(&calls));
    let text = text(work, &all, snapshot.as_ref());
    fs::write(out.join("report.md"), &text).map_err(|error| format!("{}: {error}", out.display()))?;
    print!("{text}");
    Ok(u8::from(all.iter().any(|row| row.verdict == Verdict::Differs)))
}

/// What check.sh noted of one step: its name, exit code, `-` where it was left out, and why.
struct Step {
    name: String,
    code: String,
    note: String,
}

fn steps(work: &Path) -> Vec<Step> {
    let text = fs::read_to_string(work.join("steps")).unwrap_or_default();
    let step = |line: &str| {
        let mut parts = line.splitn(3, '\t').map(ToOwned::to_owned);
        Some(Step { name: parts.next()?, code: parts.next()?, note: parts.next().unwrap_or_default() })
    };
    text.lines().filter_map(step).collect()
}

fn calls(work: &Path) -> Vec<Line> {
    let text = fs::read_to_string(work.join("calls")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn nothing(steps: &[Step], calls: &[Line], snapshot: Option<&(Said, SnapshotFile)>) -> String {
    let mut text = "No NVIDIA GPU answers here, so nothing was compared or measured.\n".to_owned();
    for line in calls {
        if let Line::Failed(why) = line {
            text.push_str(&format!("  the driver's library: {why}\n"));
        }
    }
    let on_pci = snapshot.and_then(|(_, file)| file.snapshot.host.pci_gpus.value().map(Vec::len));
    if let Some(count) = on_pci.filter(|count| *count > 0) {
        text.push_str(&format!("  on PCI there are {count}: is the driver loaded (nvidia-smi)?\n"));
    }
    for step in steps.iter().filter(|step| step.code != "0") {
        text.push_str(&format!("  {}: {}\n", step.name, step.note));
    }
    text
}

/// Steps that were left out, went wrong or ran into their deadline.
fn step_rows(steps: &[Step]) -> Vec<Row> {
    let row = |step: &Step| match step.code.as_str() {
        "-" => Row::new("steps", &step.name, step.note.clone(), Verdict::LeftOut),
        "0" => Row::new("steps", &step.name, step.note.clone(), Verdict::Measured),
        code => {
            let ran_out = ["124", "137"].contains(&code);
            let says = if ran_out { "no end before its deadline" } else { "failed" };
            let mut row =
                Row::new("steps", &step.name, format!("{says} (exit code {code})"), Verdict::Differs);
            row.details.push(format!("steps: {} {says}: {}", step.name, step.note));
            row
        }
    };
    steps.iter().map(row).collect()
}

fn values(work: &Path, snapshot: Option<&(Said, SnapshotFile)>, opened: usize) -> Vec<Row> {
    let mut all = Vec::new();
    if let Some((said, _)) = snapshot {
        if said.gpus.len() != opened {
            let mut row = Row::new("values", "GPUs", String::new(), Verdict::Differs);
            row.says = format!("gpuward's snapshot has {} that open, NVML {opened}", said.gpus.len());
            row.details.push(format!("values: {}", row.says));
            all.push(row);
        }
    }
    let rounds: Vec<Round> = ROUNDS.iter().filter_map(|round| Round::read(work, round)).collect();
    let Some(first) = rounds.first() else {
        let why = "no second opinion: neither python3 with nvidia-ml-py nor nvidia-smi answered".to_owned();
        all.push(Row::new("values", "all values of the snapshot", why, Verdict::NotComparable));
        return all;
    };
    all.extend(rows::sets_of_gpus(&first.before, &first.file, &first.second));
    let compared = rows::best(rounds.iter().map(Round::compared).collect());
    all.extend(rows::rows("values", &first.second.reader, &compared));
    all
}

fn of_jobs(work: &Path) -> Vec<Row> {
    let text = fs::read_to_string(work.join("jobs")).unwrap_or_default();
    let Ok(jobs) = serde_json::from_str::<Jobs>(text.trim()) else { return Vec::new() };
    let mut all = Vec::new();
    for (what, times) in [("prolog", jobs.prolog_ms), ("epilog", jobs.epilog_ms)] {
        let Some([median, worst]) = times else { continue };
        let first = if what == "prolog" { format!("first {:.1} ms, ", jobs.first_ms) } else { String::new() };
        let says = format!(
            "{first}median {median:.1} ms, worst {worst:.1} ms of {} on {} GPUs",
            jobs.jobs - 1,
            jobs.gpus
        );
        all.push(Row::new("job", what, says, Verdict::Measured));
    }
    let fine = jobs.wrong.is_empty();
    let says = if fine {
        format!(
            "{} jobs, all exit codes 0, {} records with their GPUs and possible numbers",
            jobs.jobs, jobs.records
        )
    } else {
        format!("{} things are wrong", jobs.wrong.len())
    };
    let verdict = if fine { Verdict::Agrees } else { Verdict::Differs };
    let mut row = Row::new("job", "exit codes and records", says, verdict);
    row.details = jobs.wrong.iter().map(|wrong| format!("job: {wrong}")).collect();
    all.push(row);
    all
}

fn of_fake(work: &Path) -> Vec<Row> {
    let (real, fake) = (rows::snapshot(&work.join("imported")), rows::snapshot(&work.join("fake")));
    let (Some((real, _)), Some((mut fake, _))) = (real, fake) else { return Vec::new() };
    fake.reader = "the simulated library".into();
    let compared = rows::of_fake(&real, &fake);
    let differ = rows::rows("fake", &fake.reader, &compared);
    let differ: Vec<Row> = differ.into_iter().filter(|row| row.verdict == Verdict::Differs).collect();
    if differ.is_empty() {
        let says = format!("all {} values of its snapshot are this machine's", compared.len());
        return vec![Row::new("fake", "the machine made of the snapshot", says, Verdict::Agrees)];
    }
    differ
}

fn trials(calls: &[Line], said: Option<&Said>) -> Vec<Row> {
    let fields: Vec<&FieldAnswer> = calls
        .iter()
        .filter_map(|line| match line {
            Line::Field(field) => Some(field),
            _ => None,
        })
        .collect();
    let mut all = Vec::new();
    for (ids, name) in
        [(OLD, "throttle times as fields 251 to 253"), (NEW, "throttle times as fields 269 to 271")]
    {
        let answers = ids.iter().filter_map(|id| fields.iter().find(|field| field.id == *id));
        let told = |field: &FieldAnswer| {
            field.value.map_or_else(|| word(field.code), |value| format!("{value} ({})", kind(field.kind)))
        };
        let says: Vec<String> = answers.map(|field| told(field)).collect();
        if !says.is_empty() {
            all.push(Row::new("trials", name, says.join(", "), Verdict::Measured));
        }
    }
    all.extend(choice(calls, &fields, said));
    all.extend(metrics(calls));
    all
}

/// `nvmlValueType_t`.
fn kind(number: u32) -> String {
    let known = ["double", "unsigned int", "unsigned long", "unsigned long long", "signed long long", "int"];
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    known.get(place).map_or_else(|| format!("type {number}"), |name| (*name).to_owned())
}

/// gpuward chooses by the driver's version: what it reads must be what that numbering answers.
fn choice(calls: &[Line], fields: &[&FieldAnswer], said: Option<&Said>) -> Option<Row> {
    let gpu = calls.iter().find_map(|line| match line {
        Line::Gpu(gpu) => Some(gpu),
        _ => None,
    })?;
    let address: gpuward_core::model::PciAddress = gpu.pci.parse().ok()?;
    let ours = said?.gpus.get(&address.to_string())?;
    let version: Vec<u32> = gpu.driver.split('.').take(2).filter_map(|part| part.parse().ok()).collect();
    let ids = if version >= vec![580, 82] { NEW } else { OLD };
    let names = ["sw_thermal", "hw_thermal", "power_brake"];
    let what = format!("numbering that gpuward takes for {}", gpu.driver);
    let mut row = Row::new(
        "trials",
        &what,
        format!("{} to {}, and reads what they say", ids[0], ids[2]),
        Verdict::Agrees,
    );
    for (name, id) in names.iter().zip(ids) {
        let read = ours.get(&format!("counters.throttle_{name}_ns"));
        let value = read.and_then(|read| read.get("value")).and_then(serde_json::Value::as_u64);
        let answer = fields.iter().find(|field| field.id == id)?;
        // The counter may have moved between the two; that it answers at all is the question.
        let same = match (value, answer.value) {
            (Some(ours), Some(direct)) => direct >= ours,
            (None, None) => true,
            _ => false,
        };
        if !same {
            row.verdict = Verdict::Differs;
            row.says = format!("{} to {}, but it reads otherwise", ids[0], ids[2]);
            row.details.push(format!(
                "trials: field {id}: gpuward reads {value:?} as throttle_{name}_ns, a direct call {:?} ({})",
                answer.value,
                word(answer.code)
            ));
        }
    }
    Some(row)
}

fn metrics(calls: &[Line]) -> Vec<Row> {
    let metrics: Vec<&MetricAnswer> = calls
        .iter()
        .filter_map(|line| match line {
            Line::Metric(metric) => Some(metric),
            _ => None,
        })
        .collect();
    let Some(first) = metrics.first() else { return Vec::new() };
    if first.id == 0 {
        let says = format!("none: {}", word(first.code));
        return vec![Row::new("trials", "performance metrics (GPM)", says, Verdict::Measured)];
    }
    let group = |what: &str, wanted: &dyn Fn(u32) -> bool| {
        let of = |metric: &&&MetricAnswer| wanted(metric.id);
        let says = |metric: &MetricAnswer| metric.value.map_or_else(|| word(metric.code), |v| v.to_string());
        let mut answers: Vec<String> = metrics.iter().filter(of).map(|metric| says(metric)).collect();
        answers.dedup();
        let told = match &answers[..] {
            [one] => format!("{one}, all of them"),
            _ => {
                let each = metrics.iter().filter(of);
                each.map(|metric| format!("{}: {}", metric.id, says(metric))).collect::<Vec<_>>().join(", ")
            }
        };
        Row::new("trials", what, told, Verdict::Measured)
    };
    vec![
        group("GPM metrics 1, 2 (as long as there is GPM)", &|id| id < 100),
        group("GPM counters since boot, 248 to 260", &|id| id >= 100),
    ]
}

fn costs(calls: &[Line]) -> Vec<Row> {
    let mut all = Vec::new();
    let timings: Vec<&Timing> = calls
        .iter()
        .filter_map(|line| match line {
            Line::Timing(timing) => Some(timing),
            _ => None,
        })
        .collect();
    let sum: f64 = timings.iter().map(|timing| timing.median_us * f64::from(timing.per_job)).sum();
    let count: u32 = timings.iter().map(|timing| timing.per_job).sum();
    if count > 0 {
        let says = format!("{sum:.0} us for {count} calls, by the medians below");
        all.push(Row::new("costs", "sum of a prolog's calls, one GPU", says, Verdict::Measured));
    }
    for line in calls {
        if let Line::Whole(Whole { gpus, first_us, median_us, worst_us, runs }) = line {
            let says =
                format!("first {first_us:.0}, median {median_us:.0}, worst {worst_us:.0} us of {runs}");
            let what = format!("a prolog's calls as one, GPUs side by side: {gpus}");
            all.push(Row::new("costs", &what, says, Verdict::Measured));
        }
    }
    all.extend(timings.iter().map(|timing| cost(timing)));
    if let (Some(Line::Begin(last)), false) =
        (calls.last(), calls.iter().any(|line| matches!(line, Line::End)))
    {
        let mut row = Row::new("costs", last, "began and did not come back in time".into(), Verdict::Differs);
        row.details.push(format!("costs: {last} did not come back in time"));
        all.push(row);
    }
    all
}

fn cost(timing: &Timing) -> Row {
    let Timing { function, about, code, first_us, median_us, worst_us, calls, per_job, per_look } = timing;
    let what = if about.is_empty() { format!("`{function}`") } else { format!("`{function}` ({about})") };
    let mut says = format!("first {first_us:.1} us");
    if *calls > 0 {
        says.push_str(&format!(", median {median_us:.1}, worst {worst_us:.1} of {calls}"));
    }
    if *code != 0 {
        says.push_str(&format!("; {}", word(*code)));
    }
    if per_job + per_look > 0 {
        says.push_str(&format!("; prolog x{per_job}, snapshot x{}", per_job + per_look));
    }
    Row::new("costs", &what, says, Verdict::Measured)
}

fn text(work: &Path, all: &[Row], snapshot: Option<&(Said, SnapshotFile)>) -> String {
    let machine = fs::read_to_string(work.join("machine")).unwrap_or_default();
    let mut out = format!("## {}\n\n", heading(snapshot));
    out.push_str(machine.trim());
    out.push_str("\n\n");
    let count = |verdict| all.iter().filter(|row| row.verdict == verdict).count();
    let (agree, differ) = (count(Verdict::Agrees), count(Verdict::Differs));
    let open = count(Verdict::NotComparable);
    out.push_str(&match differ {
        0 => format!("**All {agree} rows that could be compared agree**"),
        _ => format!("**{differ} of {} rows that could be compared differ**", agree + differ),
    });
    out.push_str(&format!("; {open} had nothing to compare with.\n"));
    let details: Vec<&String> = all.iter().flat_map(|row| &row.details).collect();
    if !details.is_empty() {
        out.push('\n');
    }
    for detail in details.iter().take(MOST_DETAILS) {
        out.push_str(&format!("* {detail}\n"));
    }
    if details.len() > MOST_DETAILS {
        out.push_str(&format!("* and {} more of the kind\n", details.len() - MOST_DETAILS));
    }
    out.push_str(LEGEND);
    out.push_str(&table(all));
    out
}

/// What a newcomer needs to read the table.
const LEGEND: &str = "
How to read it: `values` has one row for each value of the snapshot, whatever number of GPUs and links has it. A value that
moves, such as energy, heat and power, agrees where it lies between gpuward's readings before and after. `costs` are times of
the first call in a process, then median and worst of the later ones; `prolog x2` is how often a prolog makes the call for one
GPU, `snapshot x3` how often a snapshot does.

";

/// Enough to see what kind of difference it is.
const MOST_DETAILS: usize = 40;

fn heading(snapshot: Option<&(Said, SnapshotFile)>) -> String {
    let Some((_, file)) = snapshot else { return "A machine without a snapshot".to_owned() };
    let models: Vec<&String> =
        file.snapshot.gpus.iter().filter_map(|gpu| gpu.reading.model.value()).collect();
    let mut kinds: Vec<String> = Vec::new();
    for model in &models {
        let count = models.iter().filter(|other| other == &model).count();
        let kind = format!("{count} x {model}");
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let driver = &file.snapshot.node.driver_version;
    let mig = file.snapshot.gpus.iter().filter(|gpu| gpu.reading.mig.value() == Some(&true)).count();
    let cold =
        file.snapshot.gpus.iter().filter(|gpu| gpu.reading.persistence.value() == Some(&false)).count();
    let mut told = format!("{}, driver {driver}", kinds.join(" and "));
    if mig > 0 {
        told.push_str(&format!(", MIG on {mig}"));
    }
    if cold > 0 {
        told.push_str(&format!(", persistence mode off on {cold}"));
    }
    told
}

/// Markdown that reads well as plain text, too.
fn table(all: &[Row]) -> String {
    let cell = |text: &str| rows::shorten(&text.replace('|', "\\|").replace('\n', " "), 300);
    let lines: Vec<[String; 4]> = all
        .iter()
        .map(|row| [row.step.to_owned(), cell(&row.what), cell(&row.says), row.verdict.word().to_owned()])
        .collect();
    let head = ["step", "what", "says", "verdict"].map(ToOwned::to_owned);
    let width = |column: usize| {
        let longest = lines.iter().chain([&head]).map(|line| line[column].chars().count()).max();
        longest.unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), 0];
    let line = |cells: &[String; 4]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(text, width)| format!("{text:width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule = widths.map(|width| "-".repeat(width.max(3)));
    let mut out = line(&head);
    out.push_str(&line(&rule));
    lines.iter().for_each(|cells| out.push_str(&line(cells)));
    out
}
