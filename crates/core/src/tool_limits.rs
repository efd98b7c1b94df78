//! How the memory of the manager is shared by the processes of package tools.

const MIB: u64 = 1 << 20;
/// A process gets no more than this, even if there is more.
const MOST: u64 = 1024 * MIB;
/// A process that has less cannot work with common packages.
const LEAST: u64 = 256 * MIB;
/// A process is replaced at this size at the latest.
const REPLACED_AT: u64 = 512 * MIB;
/// The template service, and the process that replaces it before it has ended.
const TEMPLATE_PROCESSES: u64 = 2;

/// The limits of the processes of package tools, and of the template service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// How many processes of package tools may use all of their memory at the same time. Processes whose calls only wait for objects
    /// use less, so there may be more of them.
    pub processes: u64,
    /// How many processes of the template service run at the same time.
    pub templates: u64,
    /// Memory that a process, or the template service, cannot exceed, in bytes.
    pub hard: u64,
    /// Memory at which it is replaced when it has no calls.
    pub soft: u64,
}

impl ToolLimits {
    /// Divides `memory` between the manager, which gets a quarter, up to `processes` processes of package tools, and up to two of
    /// the template service. `None` means that the memory is not limited. If it is too little, there are fewer processes.
    pub fn new(memory: Option<u64>, processes: u64) -> Self {
        let processes = processes.max(1);
        let Some(memory) = memory else { return Self::with(processes, TEMPLATE_PROCESSES, MOST) };
        let available = memory - memory / 4;
        let shares = available / LEAST;
        let templates = if shares < 2 * TEMPLATE_PROCESSES { 1 } else { TEMPLATE_PROCESSES };
        let processes = shares.saturating_sub(templates).clamp(1, processes);
        Self::with(processes, templates, (available / (processes + templates)).min(MOST))
    }

    fn with(processes: u64, templates: u64, hard: u64) -> Self {
        Self { processes, templates, hard, soft: (hard / 4 * 3).min(REPLACED_AT) }
    }

    /// Returns whether processes have so little memory that common packages may exceed it.
    pub fn are_tight(&self) -> bool {
        self.hard < LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_processes_fit_into_the_memory() {
        let rows = [
            // Memory in MiB, processes; processes of package tools and of the template service, and their limit in MiB.
            (None, 4, (4, 2), 1024),
            (None, 0, (1, 2), 1024),
            (Some(4096), 4, (4, 2), 512),
            (Some(4096), 16, (10, 2), 256),
            (Some(2048), 4, (4, 2), 256),
            (Some(2048), 16, (4, 2), 256),
            (Some(1024), 4, (2, 1), 256),
            (Some(768), 4, (1, 1), 288),
            (Some(512), 4, (1, 1), 192),
            (Some(65_536), 4, (4, 2), 1024),
        ];
        for (memory, wanted, processes, hard) in rows {
            let limits = ToolLimits::new(memory.map(|mib| mib * MIB), wanted);
            let found = ((limits.processes, limits.templates), limits.hard / MIB);
            assert_eq!(found, (processes, hard), "{memory:?}");
            assert!(limits.soft < limits.hard);
            let all = (limits.processes + limits.templates) * limits.hard;
            assert!(memory.is_none_or(|mib| all <= mib * MIB / 4 * 3), "{memory:?}: {all}");
            assert_eq!(limits.are_tight(), memory == Some(512));
        }
    }
}
