//! `make demo`: a job crosses gpuward on a real Slurm cluster, told line by line.
//!
//! Exit code 0 only if everything that is told has happened.

use gpuward_core::account::{JobRecord, Quality};
use gpuward_core::model::JobId;
use gpuward_tests::cluster::{Info, built, run};
use gpuward_tests::sim::SimNode;
use gpuward_tests::stack::{Stack, StackBuilder};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

type Told<T> = Result<T, String>;

/// Everything in the story happens within seconds; only a failure takes this long.
const LIMIT: Duration = Duration::from_secs(90);

/// The GPU that breaks, as a slot of the simulated machine.
const BROKEN_SLOT: u32 = 3;

fn main() -> ExitCode {
    let keep = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--keep") => true,
        Some(_) => {
            eprintln!("usage: demo [--keep]    --keep leaves the cluster up and says how to use it");
            return ExitCode::from(64);
        }
    };
    match story(keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe story ends here: {error}");
            ExitCode::FAILURE
        }
    }
}

fn story(keep: bool) -> Told<()> {
    say("gpuward demo: jobs cross gpuward on a real Slurm cluster. Only the GPUs are simulated.");
    let stack = start_cluster()?;
    run_healthy_job(&stack)?;
    break_a_gpu(&stack);
    let id = submit_to_the_broken_node(&stack)?;
    show_drain(&stack, id)?;
    show_job(&stack, id)?;
    show_check(&stack)?;
    say("\nEverything above has happened and was checked.");
    if keep {
        say("");
        say(&stack.cluster.keep().map_err(|error| error.to_string())?);
    }
    Ok(())
}

fn say(text: &str) {
    println!("{text}");
}

fn chapter(number: u32, title: &str) {
    println!("\n{number}. {title}");
}

/// Prints the output of a command as on a terminal.
fn show(command: &str, output: &str) {
    println!("   $ {command}");
    for line in output.lines() {
        println!("{}", format!("   {line}").trim_end());
    }
}

/// Says that something was checked, or ends the story.
fn check(what: &str, holds: bool) -> Told<()> {
    if holds {
        println!("   [ok] {what}");
        Ok(())
    } else {
        Err(format!("this did not happen: {what}"))
    }
}

fn start_cluster() -> Told<Stack> {
    chapter(1, "A throw-away cluster");
    let builder = StackBuilder::new("demo").node("n1", "hgx-h100").node("n2", "hgx-h100");
    let stack = builder.start().map_err(|error| error.to_string())?;
    let version = slurm(&stack, "sinfo", &["-V"])?;
    let gpu = stack.node("n1").machine.gpu(0).ok_or("the machine has no GPU")?;
    let seconds = stack.cluster.start_time.as_secs_f32();
    println!("   {}: munged, slurmctld and two slurmd, started in {seconds:.1} s", version.trim());
    println!("   n1, n2: 8 x {} each, from a simulated NVML library", gpu.name);
    println!("   gpuward's prolog, epilog and SPANK plugin are in its slurm.conf and plugstack.conf");
    let output = slurm(&stack, "sinfo", &["-N", "-o", "%N %T %G"])?;
    show("sinfo -N -o '%N %T %G'", &output);
    check("both nodes are idle", output.matches(" idle ").count() == 2)?;
    Ok(stack)
}

/// What the user runs.
const TRAIN: &str = "#!/bin/sh
echo \"$SLURM_GPUS_ON_NODE GPUs on $SLURMD_NODENAME, CUDA_DEVICE_ORDER=$CUDA_DEVICE_ORDER\"
sleep 3
";

fn write_script(stack: &Stack) -> std::io::Result<()> {
    let path = stack.cluster.path().join("out/train.sh");
    std::fs::write(&path, TRAIN)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
}

fn run_healthy_job(stack: &Stack) -> Told<()> {
    chapter(2, "A healthy job");
    write_script(stack).map_err(|error| error.to_string())?;
    let node = stack.node("n1");
    node.fault(&busy(node, 3));
    let args = ["-w", "n1", "--gres=gpu:2", "./train.sh"];
    let output = stack.cluster.srun(&args).map_err(|error| error.to_string())?;
    show(&format!("srun {}", args.join(" ")), &(output.stdout.clone() + &output.stderr));
    check("the job ran", output.ok())?;
    check("the plugin told CUDA to count GPUs as the system does", output.stdout.contains("=PCI_BUS_ID"))?;
    let took_ms = prolog_ms(&node.log()).ok_or("the prolog logged no time")?;
    check(
        &format!("the prolog looked at the job's GPUs in {took_ms} ms, without asking slurmctld"),
        took_ms < 2000,
    )?;
    let records = wait_for_records(node, 1)?;
    show_records(stack, "n1", None)?;
    let exact = |gpu: &gpuward_core::account::GpuUse| gpu.energy_mj.quality == Quality::Exact;
    check(
        "the epilog left one exact record for its two GPUs",
        records[0].gpus.iter().filter(|g| exact(g)).count() == 2,
    )
}

/// GPUs of the job compute for a while, so that there is energy to account for.
fn busy(node: &SimNode, seconds: u64) -> String {
    let now_ms = boottime_ms();
    let slots = (0..8).filter(|&slot| node.minor(slot) < 2);
    let entry = |slot| {
        let until = now_ms + seconds * 1000;
        format!("[[busy]]\ngpu = {slot}\nfrom_boottime_ms = {now_ms}\nuntil_boottime_ms = {until}\n")
    };
    slots.map(entry).collect()
}

/// Milliseconds since boot, by the clock of the simulated counters.
fn boottime_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let (seconds, hundredths) =
        text.split(' ').next().and_then(|word| word.split_once('.')).unwrap_or(("0", "0"));
    seconds.parse::<u64>().unwrap_or(0) * 1000 + hundredths.parse::<u64>().unwrap_or(0) * 10
}

fn prolog_ms(log: &str) -> Option<u64> {
    log.lines().rev().find_map(|line| line.rsplit_once("took_ms="))?.1.trim().parse().ok()
}

fn break_a_gpu(stack: &Stack) {
    chapter(3, "A GPU of n1 falls off the bus");
    let node = stack.node("n1");
    let script = std::fs::read_to_string(node.dir.join("lib/faults.toml")).unwrap_or_default();
    node.fault(&format!("{script}\n[[lost]]\ngpu = {BROKEN_SLOT}\n"));
    let pci = node.pci(BROKEN_SLOT);
    let message = format!("NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus.", pci.trim_end_matches(".0"));
    node.kernel_says(&message);
    println!("   kernel: {message}");
    println!("   NVML answers \"GPU is lost\" for it from now on. Slurm does not notice: n1 is still idle.");
}

fn submit_to_the_broken_node(stack: &Stack) -> Told<JobId> {
    chapter(4, "A batch job wants eight GPUs, and Slurm sends it to n1");
    let output = slurm(stack, "sbatch", &["--gres=gpu:8", "train.sh"])?;
    show("sbatch --gres=gpu:8 train.sh", &output);
    let id = output.split_whitespace().last().and_then(|word| word.parse().ok()).map(JobId);
    let id = id.ok_or("sbatch told no job id")?;
    let drained = stack.cluster.wait_node("n1", |node| node.is("DRAIN"), LIMIT);
    drained.map_err(|error| error.to_string())?;
    println!("   gpuward's prolog refused it there: n1 is drained, the job goes back into the queue");
    Ok(id)
}

fn show_drain(stack: &Stack, id: JobId) -> Told<()> {
    chapter(5, "What the admin sees");
    show("sinfo -R", &slurm(stack, "sinfo", &["-R"])?);
    let node = stack.cluster.node("n1").map_err(|error| error.to_string())?;
    println!("   and the whole reason:");
    println!("   {}", node.reason());
    let machine = stack.node("n1");
    let start = format!("gpuward:XID79 GPU{} {} ", machine.minor(BROKEN_SLOT), machine.pci(BROKEN_SLOT));
    check("the reason names fault, GPU and PCI address", node.reason().starts_with(&start))?;
    check("and the job that met it, and what to do", node.reason().contains(&format!("job={id} do=reboot")))
}

fn show_job(stack: &Stack, id: JobId) -> Told<()> {
    chapter(6, "What the user sees");
    let ended = |job: &Info| job.is("COMPLETED") || job.is("FAILED") || job.get("Priority") == "0";
    let job = stack.cluster.wait_job(id, ended, LIMIT).map_err(|error| error.to_string())?;
    show(&format!("cat slurm-{id}.out"), &stack.cluster.job_output(id));
    let facts = ["JobId", "JobState", "Restarts", "NodeList", "ExitCode"]
        .map(|key| format!("{key}={}", job.get(key)));
    show(&format!("scontrol show job {id}"), &facts.join(" "));
    let restarted = job.is("COMPLETED") && job.get("NodeList") == "n2" && job.get("Restarts") == "1";
    check("the same job finished on n2; it was requeued once and never held", restarted)?;
    let records = wait_for_records(stack.node("n2"), 1)?;
    show_records(stack, "n2", Some(id))?;
    check("its record covers eight GPUs", records[0].gpus.len() == 8)?;
    check("the run that was refused left none", stack.node("n1").records().len() == 1)
}

fn show_check(stack: &Stack) -> Told<()> {
    chapter(7, "A look at the node by hand");
    let (text, code) = gpuward(stack, "check", "n1", &[])?;
    show(&format!("gpuward check {}", options(stack, "n1")), &text);
    check("gpuward check says fail, with exit code 1", code == Some(1))
}

fn wait_for_records(node: &SimNode, count: usize) -> Told<Vec<JobRecord>> {
    let start = Instant::now();
    loop {
        let records = node.records();
        if records.len() >= count {
            return Ok(records);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("the epilog left {} records and not {count}", records.len()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn show_records(stack: &Stack, node: &str, job: Option<JobId>) -> Told<()> {
    let id = job.map(|id| id.to_string());
    let (text, _) = gpuward(stack, "jobs", node, &id.iter().map(String::as_str).collect::<Vec<_>>())?;
    let id = id.map_or_else(String::new, |id| format!("{id} "));
    show(&format!("gpuward jobs {id}{}", options(stack, node)), &text);
    Ok(())
}

fn options(stack: &Stack, node: &str) -> String {
    format!("--node {node} --config {}/etc/gpuward.toml", stack.cluster.path().display())
}

fn gpuward(stack: &Stack, verb: &str, node: &str, args: &[&str]) -> Told<(String, Option<i32>)> {
    let mut command = Command::new(built("gpuward").map_err(|error| error.to_string())?);
    command.arg(verb).args(args).args(options(stack, node).split(' '));
    command.arg("--slurm-conf").arg(stack.cluster.slurm_conf());
    let output = run(&mut command, "", LIMIT).map_err(|error| error.to_string())?;
    Ok((output.stdout + &output.stderr, output.code))
}

fn slurm(stack: &Stack, program: &str, args: &[&str]) -> Told<String> {
    let output =
        run(stack.cluster.command(program).args(args), "", LIMIT).map_err(|error| error.to_string())?;
    if output.ok() { Ok(output.stdout) } else { Err(format!("{program}: {}", output.stderr)) }
}
