//! Which control group a process is in.

/// The job whose control group this process is in, from the text of /proc/self/cgroup; `None` outside of any.
///
/// A prolog is inside one only under `PrologFlags=RunInJob` (24.05 and newer). Slurm's GPU indices then count from the
/// job's own first GPU, so they cannot be resolved.
pub fn job_of(cgroup_text: &str) -> Option<u32> {
    cgroup_text.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let in_slurm =
            path.split('/').any(|part| part.starts_with("slurm") || part.ends_with("slurmstepd.scope"));
        let job = path.split('/').find_map(|part| part.strip_prefix("job_")?.parse().ok());
        job.filter(|_| in_slurm)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_group_is_told_from_any_other() {
        assert_eq!(job_of("4:memory:/slurm/uid_0/job_12/step_extern\n"), Some(12));
        assert_eq!(job_of("0::/system.slice/n1_slurmstepd.scope/job_7/step_extern/slurm\n"), Some(7));
        assert_eq!(job_of("0::/system.slice/slurmd.service\n"), None);
        assert_eq!(job_of("0::/user.slice/job_7\n"), None);
        assert_eq!(job_of(""), None);
    }
}
