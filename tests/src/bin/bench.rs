//! `make bench`: what a prolog and a step cost, as ratios measured side by side in one run.
//!
//! Exit code 0 if every target is met, 1 if one is missed.

use gpuward_core::health::kernel_log::OpenLog;
use gpuward_core::health::{Case, History, Limits, Severity, evaluate};
use gpuward_tests::cluster::Cluster;
use gpuward_tests::measure::{Series, pairs};
use gpuward_tests::sim::{Bench, Freezer, run};
use gpuward_tests::stack::StackBuilder;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The default of `[probe] deadline_ms`.
const DEADLINE_MS: f64 = 2000.0;

/// What the prolog took of the script's time when it knew only the first rules (3.84 of 39.81 ms on a quiet machine), to
/// tell what more rules cost.
const FIRST_PROLOG_SHARE: f64 = 0.09;

fn main() -> ExitCode {
    println!(
        "Medians of runs that alternate, with the smallest and the largest in brackets; milliseconds.\n"
    );
    let met = [
        healthy_prolog(),
        eight_gpus_against_one(),
        hung_driver(),
        step_with_plugin(),
        kernel_log_lines(),
        sixteen_gpus_judged(),
    ];
    if met.iter().all(|&met| met) {
        println!("\nEvery target is met.");
        ExitCode::SUCCESS
    } else {
        println!("\nA target is missed.");
        ExitCode::FAILURE
    }
}

/// How long the lines of a full kernel log take: most are not about GPUs, one in a hundred is.
fn kernel_log_lines() -> bool {
    println!("100,000 lines of kernel log, one in a hundred an XID");
    let line = |at: u32| match at % 100 {
        0 => format!("NVRM: Xid (PCI:0000:{:02x}:00): {}, pid={at}, name=x, Ch 0000000a", at % 256, at % 176),
        1..40 => format!("NVRM: rpcRmApiControl_GSP: call {at} failed"),
        _ => format!("mlx5_core 0000:1a:00.0: event {at}"),
    };
    let lines: Vec<String> = (0..100_000).map(line).collect();
    let absorb = || {
        let start = Instant::now();
        let mut log = OpenLog::default();
        lines.iter().zip(0..).for_each(|(line, seq)| log.absorb(seq, seq, line));
        start.elapsed().as_secs_f64() * 1000.0
    };
    let fastest = (0..5).map(|_| absorb()).fold(f64::MAX, f64::min);
    target("fastest of five readings, ms", fastest, 100.0)
}

/// How long all rules take on what a full look at 16 GPUs has read.
fn sixteen_gpus_judged() -> bool {
    println!("All rules on a full look at 16 GPUs");
    let file = quiet_bench("dgx-2").snapshot();
    assert_eq!(file.snapshot.gpus.len(), 16);
    let (history, limits) = (History::default(), Limits::default());
    let case = Case {
        snapshot: &file.snapshot,
        expected: &file.expected,
        history: &history,
        limits: &limits,
        gpu_map_certain: true,
    };
    let judge_us = || {
        let start = Instant::now();
        let findings = evaluate(std::hint::black_box(&case));
        let took_us = start.elapsed().as_secs_f64() * 1e6;
        assert!(findings.iter().all(|finding| finding.severity <= Severity::Info), "{findings:?}");
        took_us
    };
    let fastest = (0..200).map(|_| judge_us()).fold(f64::MAX, f64::min);
    target("fastest of 200 times, us", fastest, 200.0)
}

/// One target, told with what was measured.
fn target(what: &str, measured: f64, limit: f64) -> bool {
    let met = measured <= limit;
    println!("  {} {what}: {measured:.2}, allowed {limit:.2}\n", if met { "[met]   " } else { "[MISSED]" });
    met
}

fn line(name: &str, series: &Series) {
    println!("  {name:<44} {series}");
}

fn timed(command: &mut Command) -> f64 {
    let start = Instant::now();
    let run = run(command);
    let took_ms = start.elapsed().as_secs_f64() * 1000.0;
    assert_eq!(run.code, Some(0), "{command:?}: {}", run.stderr);
    took_ms
}

fn quiet_bench(scenario: &str) -> Bench {
    let bench = Bench::new(scenario, "drain", "");
    let path = bench.path("etc/gpuward.toml");
    let text = fs::read_to_string(&path).expect("the configuration is there");
    bench.write("etc/gpuward.toml", &text.replace("level = \"debug\"", "level = \"info\""));
    bench
}

/// What the first rules read, by Python; the search path of the binding comes from `make tools`.
fn script(bench: &Bench) -> Command {
    let binding = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/pynvml");
    assert!(binding.is_dir(), "{} is missing: run `make tools`", binding.display());
    let mut command = Command::new("/usr/bin/python3");
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("PYTHONPATH", binding).env("LD_LIBRARY_PATH", bench.node.dir.join("lib"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/probe.py"));
    command.args((0..8).map(|slot| bench.node.pci(slot)));
    command
}

fn healthy_prolog() -> bool {
    println!("Healthy prolog of a node with 8 GPUs, a library that answers at once");
    let bench = quiet_bench("hgx-h100");
    let all = bench.all_gpus();
    let mut job = 0;
    let mut prolog = || {
        job += 1;
        timed(&mut bench.command("gpuward-prolog", job, &all))
    };
    let (ours, python) = pairs(100, &mut prolog, || timed(&mut script(&bench)));
    let (_, nothing) = pairs(60, &mut prolog, || timed(&mut true_command()));
    let mut job = 1_000_000;
    let (_, epilog) = pairs(
        40,
        || 0.0,
        || {
            job += 1;
            timed(&mut bench.command("gpuward-prolog", job, &all));
            timed(&mut bench.command("gpuward-epilog", job, &all))
        },
    );
    line("gpuward's prolog", &ours);
    line("gpuward's epilog", &epilog);
    line("a Python script with the first rules' reads", &python);
    line("/bin/true as prolog", &nothing);
    println!("  {:<44} {:.1}", "prolog more than /bin/true, ms", ours.median() - nothing.median());
    let shares = ours.of_pairs(&python, |ours, python| ours / python);
    let ten_times = target("share of the script's time, median of the pairs", shares.median(), 0.10);
    let against_first = shares.median() / FIRST_PROLOG_SHARE;
    target("all rules against the first prolog's share", against_first, 2.0) && ten_times
}

fn true_command() -> Command {
    let mut command = Command::new("/bin/true");
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn eight_gpus_against_one() -> bool {
    println!("A library that takes 1 ms for each call");
    let bench = quiet_bench("hgx-h100");
    bench.node.fault("latency_us = 1000\n");
    let all = bench.all_gpus();
    let (eight, one) = pairs(
        30,
        || timed(&mut bench.command("gpuward-prolog", 1, &all)),
        || timed(&mut bench.command("gpuward-prolog", 2, "0")),
    );
    line("prolog of a job with 8 GPUs", &eight);
    line("prolog of a job with 1 GPU", &one);
    target("8 GPUs against 1", eight.median() / one.median(), 1.5)
}

/// A node that was healthy before, so that its persistence mode is known to be on and the short deadline holds.
fn known_bench() -> Bench {
    let bench = quiet_bench("hgx-h100");
    timed(&mut bench.command("gpuward-prolog", 100, "0"));
    bench
}

fn hung_driver() -> bool {
    println!("A driver that hangs, deadline {DEADLINE_MS} ms");
    let mut worst: f64 = 0.0;
    for function in ["*", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetFieldValues"] {
        let bench = known_bench();
        bench.node.fault(&format!("[[hang]]\nfunction = \"{function}\"\n"));
        let times: Vec<f64> =
            (1..=3).map(|job| timed(&mut bench.command("gpuward-prolog", job, &bench.all_gpus()))).collect();
        let series = Series::new(times);
        line(&format!("hang in {function}"), &series);
        worst = worst.max(series.max());
    }
    let freezer = Freezer::new("bench");
    let bench = known_bench();
    let script =
        format!("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\nunkillable = {:?}\n", freezer.path());
    bench.node.fault(&script);
    let stuck = timed(&mut bench.command("gpuward-prolog", 1, &bench.all_gpus()));
    let blocked = timed(&mut bench.command("gpuward-prolog", 2, &bench.all_gpus()));
    line("hang in a child that SIGKILL does not end", &Series::new(vec![stuck]));
    line("the next prolog, which starts no second child", &Series::new(vec![blocked]));
    target("worst over the deadline, ms", worst.max(stuck).max(blocked) - DEADLINE_MS, 300.0)
}

fn step_with_plugin() -> bool {
    println!("srun of a step inside a job, with the plugin and without");
    let stack =
        StackBuilder::new("bench").node("n1", "hgx-h100").start().unwrap_or_else(|error| panic!("{error}"));
    let cluster = &stack.cluster;
    let id = cluster.sbatch(&["--gres=gpu:8"], "sleep 600").unwrap_or_else(|error| panic!("{error}"));
    cluster
        .wait_job(id, |job| job.is("RUNNING"), Duration::from_secs(30))
        .unwrap_or_else(|error| panic!("{error}"));
    let conf = cluster.path().join("etc/plugstack.conf");
    let with = fs::read_to_string(&conf).expect("plugstack.conf is there");
    let job = format!("--jobid={id}");
    let step = |plugstack: &str| {
        replace(&conf, plugstack);
        step_ms(cluster, &job)
    };
    // Both once, so that neither pays for what the first step of a job sets up.
    step(&with);
    step("");
    let (loaded, bare) = pairs(150, || step(&with), || step(""));
    let differences = loaded.of_pairs(&bare, |with, without| with - without);
    line("step with the plugin", &loaded);
    line("step without", &bare);
    line("difference of each pair", &differences);
    target("median difference, ms", differences.median(), 3.0)
}

fn step_ms(cluster: &Cluster, job: &str) -> f64 {
    let mut srun = cluster.command("srun");
    srun.args([job, "--overlap", "-n1", "--gres=gpu:1", "/bin/true"]);
    srun.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    timed(&mut srun)
}

/// plugstack.conf is read at every launch, so it is never half written.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("plugstack.conf is written");
    fs::rename(&new, path).expect("plugstack.conf is replaced");
}
