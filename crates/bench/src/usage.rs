//! CPU time and memory of process trees, from `/proc`.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chandler_sandbox::process::child_processes;
use tokio_util::task::AbortOnDropHandle;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The measured processes, each with its descendants. Clones share the set.
#[derive(Clone, Debug, Default)]
pub struct Processes(Arc<Mutex<BTreeSet<u32>>>);

impl Processes {
    pub fn add(&self, pid: u32) {
        self.roots().insert(pid);
    }

    pub fn remove(&self, pid: u32) {
        self.roots().remove(&pid);
    }

    /// Returns the CPU time in seconds, including that of children that have exited and were waited for.
    pub fn cpu(&self) -> f64 {
        let times = self.all().into_iter().filter_map(|pid| stat(&pid.to_string()));
        total(times.map(|times| times.own + times.exited_children))
    }

    /// Returns the resident memory in MiB.
    pub fn resident(&self) -> f64 {
        self.sum("VmRSS:")
    }

    /// Returns the sum of the peaks of each process in MiB.
    pub fn high_water(&self) -> f64 {
        self.sum("VmHWM:")
    }

    /// Returns the resident memory of the processes without their descendants, in MiB.
    pub fn resident_roots(&self) -> f64 {
        self.sum_roots("VmRSS:")
    }

    /// Returns the sum of the peaks of the processes without their descendants, in MiB.
    pub fn high_water_roots(&self) -> f64 {
        self.sum_roots("VmHWM:")
    }

    /// Returns the highest peak of one of the descendants, in MiB.
    pub fn high_water_of_one_descendant(&self) -> f64 {
        let roots = self.roots().clone();
        let descendants = self.all().into_iter().filter(|pid| !roots.contains(pid));
        descendants.filter_map(|pid| memory(pid, "VmHWM:")).fold(0.0, f64::max)
    }

    /// Samples the peak of the resident memory until the returned value is dropped.
    pub fn sample(&self) -> Peak {
        self.sample_of(Self::resident)
    }

    /// Samples the highest value of a measure until the returned value is dropped.
    pub fn sample_of(&self, measure: fn(&Self) -> f64) -> Peak {
        let highest = Arc::new(AtomicU64::new(0));
        let (processes, shared) = (self.clone(), highest.clone());
        let sampling = tokio::spawn(async move {
            loop {
                shared.fetch_max(measure(&processes).to_bits(), Ordering::Relaxed);
                tokio::time::sleep(SAMPLE_INTERVAL).await;
            }
        });
        Peak { highest, _sampling: AbortOnDropHandle::new(sampling) }
    }

    fn sum(&self, field: &str) -> f64 {
        total(self.all().iter().filter_map(|pid| memory(*pid, field)))
    }

    fn sum_roots(&self, field: &str) -> f64 {
        total(self.roots().iter().filter_map(|pid| memory(*pid, field)))
    }

    fn all(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.roots().iter().copied().collect();
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            found.extend(child_processes(pid));
            next += 1;
        }
        found
    }

    fn roots(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The highest value of a measure of memory.
#[derive(Debug)]
pub struct Peak {
    highest: Arc<AtomicU64>,
    _sampling: AbortOnDropHandle<()>,
}

impl Peak {
    pub fn mib(&self) -> f64 {
        f64::from_bits(self.highest.load(Ordering::Relaxed))
    }
}

/// Returns the CPU time in seconds of the children of this process that have exited and were waited for.
pub fn exited_children_cpu() -> f64 {
    stat("self").map_or(0.0, |times| times.exited_children)
}

/// Sums numbers. `Iterator::sum` returns -0.0 for an empty iterator, and [`Peak`] compares the bits of floats.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// CPU times in seconds.
#[derive(Debug, PartialEq)]
struct Times {
    own: f64,
    exited_children: f64,
}

fn stat(pid: &str) -> Option<Times> {
    let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, f64::from(ticks))
}

fn parse_stat(stat: &str, ticks: f64) -> Option<Times> {
    // The command name may contain spaces and parentheses; the last parenthesis closes it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map_while(|field| field.parse::<f64>().ok());
    let mut pair = || Some((times.next()? + times.next()?) / ticks);
    Some(Times { own: pair()?, exited_children: pair()? })
}

fn memory(pid: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_after_any_command_name() {
        let fields = (3..=20).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("7 (a) (b c) S{}", fields.trim_start_matches('3'));
        assert_eq!(parse_stat(&stat, 100.0), Some(Times { own: 0.29, exited_children: 0.33 }));
        assert_eq!(parse_stat("7 (a) S 1 2", 100.0), None);
    }

    /// Uses a separate process tree, because other tests run in this process.
    #[test]
    fn children_and_their_memory_are_counted() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo started; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line)
            .unwrap();
        let processes = Processes::default();
        processes.add(shell.id());
        let [_, sleep] = processes.all()[..] else { panic!("{:?}", processes.all()) };
        while memory(sleep, "VmRSS:").is_none() || !command(sleep).starts_with("sleep") {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(processes.resident() > processes.resident_roots());
        assert!(processes.high_water() > processes.high_water_roots());
        assert!(processes.high_water_roots() >= processes.resident_roots());
        let descendants = processes.high_water() - processes.high_water_roots();
        // It may have grown since.
        let of_one = processes.high_water_of_one_descendant();
        assert!(of_one >= descendants - 1e-9 && of_one <= processes.high_water());
        for pid in [sleep, shell.id()] {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        processes.remove(shell.id());
        assert_eq!(processes.all(), [] as [u32; 0]);
    }

    fn command(pid: u32) -> String {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap()
    }
}
