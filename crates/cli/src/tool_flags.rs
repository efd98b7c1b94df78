//! Flags of the processes of package tools.

use anyhow::{Result, bail};
use chandler_controller::ToolOptions;
use chandler_core::tool_limits::ToolLimits;
use clap::Args;
use rustix::process::geteuid;

/// Files with the memory limit of the container: of the two versions of control groups.
const CGROUP_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// A larger limit of a control group means that there is none.
const NO_LIMIT: u64 = 1 << 50;

/// Flags of the processes of package tools.
#[derive(Debug, Args)]
pub struct ToolFlags {
    /// Number of processes of package tools that share the memory; each namespace with operations has its own, and namespaces take
    /// turns if there are more; processes that only wait for objects use less, so there may be more of them
    #[arg(long = "tool-processes", id = "tool_processes", value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    processes: u64,
    /// Memory in MiB of the manager and these processes together; a quarter is for the manager, and the processes cannot exceed
    /// their shares [default: the limit of the container]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(256..))]
    memory_limit: Option<u64>,
    /// CPU time in seconds that one call of a package tool may use; then its process ends [default: 60]
    #[arg(long = "tool-cpu-seconds", id = "tool_cpu_seconds", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    cpu_seconds: Option<u64>,
    /// User, and optionally group, that these processes run as; requires that the manager runs as root [default: those of
    /// the manager]
    #[arg(long = "tool-user", id = "tool_user", value_name = "UID[:GID]")]
    user: Option<String>,
}

impl ToolFlags {
    /// Returns the options. `environment` is a part of the environment of the processes.
    pub fn options(self, mut environment: Vec<(String, String)>) -> Result<ToolOptions> {
        let Self { processes, memory_limit, cpu_seconds, user } = self;
        let memory = memory_limit.map(|mib| mib.saturating_mul(1 << 20)).or_else(container_limit);
        let limits = ToolLimits::new(memory, processes);
        if limits.processes < processes || limits.are_tight() {
            tracing::warn!(
                processes = limits.processes,
                mib = limits.hard >> 20,
                "memory is too little for so many processes of package tools: there are fewer, or they have little"
            );
        }
        let user = user.as_deref().map(parse_user).transpose()?;
        if user.is_some() && !geteuid().is_root() {
            bail!(
                "--tool-user requires that the manager runs as root, with the capabilities of the container's default and SYS_RESOURCE"
            );
        }
        environment
            .extend(cpu_seconds.map(|seconds| ("CHANDLER_CPU_SECONDS".to_owned(), seconds.to_string())));
        Ok(ToolOptions { environment, limits, user })
    }
}

/// Returns the memory limit of the container. `None` means that there is none.
fn container_limit() -> Option<u64> {
    let limits = CGROUP_FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    limits.filter_map(|text| text.trim().parse().ok()).find(|limit| *limit < NO_LIMIT)
}

/// Parses `UID` or `UID:GID`.
fn parse_user(text: &str) -> Result<(u32, u32)> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) if uid != 0 => Ok((uid, gid)),
        _ => {
            bail!("--tool-user must be UID or UID:GID with a UID that is not 0, such as 65533, not {text:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_number_that_is_not_root() {
        assert_eq!(parse_user("65533").unwrap(), (65533, 65533));
        assert_eq!(parse_user("65533:0").unwrap(), (65533, 0));
        for text in ["", "0", "0:5", "root", "1:", "1:x"] {
            assert!(parse_user(text).is_err(), "{text}");
        }
    }
}
