//! How the memory of the manager is shared by the processes of package tools.

const MIB: u64 = 1 << 20;
/// A process gets no more than this, even if there is more.
const MOST: u64 = 1024 * MIB;
/// A process that has less cannot work with common packages.
const LEAST: u64 = 128 * MIB;
/// A process is replaced at this size at the latest.
const REPLACED_AT: u64 = 512 * MIB;
/// One tenant cannot occupy all of so many processes.
const FEWEST: u64 = 2;
/// The template service, and the process that replaces it before it has ended.
const TEMPLATE_PROCESSES: u64 = 2;

/// The limits of the processes of package tools, and of the template service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// How many processes of package tools run at the same time.
    pub processes: u64,
    /// Memory that a process, or the template service, cannot exceed, in bytes.
    pub hard: u64,
    /// Memory at which it is replaced when it has no calls.
    pub soft: u64,
}

impl ToolLimits {
    /// Divides `memory` between the manager, which gets a quarter, up to `processes` processes of package tools, and two of the
    /// template service. `None` means that the memory is not limited. If it is too little, there are fewer processes.
    pub fn new(memory: Option<u64>, processes: u64) -> Self {
        let processes = processes.max(FEWEST);
        let Some(memory) = memory else { return Self::with(processes, MOST) };
        let shared = memory - memory / 4;
        let processes = (shared / LEAST).saturating_sub(TEMPLATE_PROCESSES).clamp(FEWEST, processes);
        Self::with(processes, (shared / (processes + TEMPLATE_PROCESSES)).min(MOST))
    }

    fn with(processes: u64, hard: u64) -> Self {
        Self { processes, hard, soft: (hard / 3 * 2).min(REPLACED_AT) }
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
            // Memory in MiB, processes; processes and their limit in MiB.
            (None, 4, 4, 1024),
            (None, 0, 2, 1024),
            (Some(4096), 4, 4, 512),
            (Some(2048), 4, 4, 256),
            (Some(2048), 16, 10, 128),
            (Some(1024), 4, 4, 128),
            (Some(768), 4, 2, 144),
            (Some(512), 4, 2, 96),
            (Some(65_536), 4, 4, 1024),
        ];
        for (memory, wanted, processes, hard) in rows {
            let limits = ToolLimits::new(memory.map(|mib| mib * MIB), wanted);
            assert_eq!((limits.processes, limits.hard / MIB), (processes, hard), "{memory:?}");
            assert!(limits.soft < limits.hard);
            let all = (limits.processes + 2) * limits.hard;
            assert!(memory.is_none_or(|mib| all <= mib * MIB / 4 * 3), "{memory:?}: {all}");
            assert_eq!(limits.are_tight(), memory == Some(512));
        }
    }
}
