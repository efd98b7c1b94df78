//! Which namespace uses how much of the store.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use chandler_core::quota::{Exceeded, Held, Quotas, make_room};

use super::proofs::Proofs;

/// A package that was used more recently is not removed for another one: its reader may be about to open it. It limits how fast a
/// namespace can replace its packages, too.
const RECENT: Duration = Duration::from_mins(1);

const UNLIMITED: Quotas = Quotas { total: u64::MAX, per_namespace: u64::MAX };

/// The files in the store, and the space that is reserved for those that are being written.
#[derive(Debug)]
pub(super) struct Ledger {
    pub quotas: Quotas,
    files: HashMap<PathBuf, LedgerFile>,
    /// Reserved bytes by namespace.
    reserved: BTreeMap<String, u64>,
    /// Bytes of files and reservations by namespace.
    used: BTreeMap<String, u64>,
    /// How often a quota was exceeded.
    pub refusals: u64,
}

/// A file in the store.
#[derive(Clone, Debug)]
pub(super) struct LedgerFile {
    /// The namespace that owns it. Empty if it is unknown.
    pub namespace: String,
    pub bytes: u64,
    pub last_use: SystemTime,
    /// `None` for files that are not packages. They are not removed for others.
    pub proofs: Option<Proofs>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            quotas: UNLIMITED,
            files: HashMap::new(),
            reserved: BTreeMap::new(),
            used: BTreeMap::new(),
            refusals: 0,
        }
    }
}

impl Ledger {
    pub fn get(&self, path: &Path) -> Option<&LedgerFile> {
        self.files.get(path)
    }

    pub fn get_mut(&mut self, path: &Path) -> Option<&mut LedgerFile> {
        self.files.get_mut(path)
    }

    /// Adds a file, or replaces it.
    pub fn insert(&mut self, path: PathBuf, file: LedgerFile) {
        self.remove(&path);
        *self.used.entry(file.namespace.clone()).or_default() += file.bytes;
        self.files.insert(path, file);
    }

    pub fn remove(&mut self, path: &Path) -> Option<LedgerFile> {
        let file = self.files.remove(path)?;
        subtract(&mut self.used, &file.namespace, file.bytes);
        Some(file)
    }

    pub fn reserve(&mut self, namespace: &str, bytes: u64) {
        for sums in [&mut self.reserved, &mut self.used] {
            *sums.entry(namespace.to_owned()).or_default() += bytes;
        }
    }

    pub fn release(&mut self, namespace: &str, bytes: u64) {
        for sums in [&mut self.reserved, &mut self.used] {
            subtract(sums, namespace, bytes);
        }
    }

    /// Returns the bytes that each namespace uses.
    pub fn usage(&self) -> &BTreeMap<String, u64> {
        &self.used
    }

    /// Returns the packages to remove so that a namespace can use `added` bytes more.
    pub fn room_for(
        &self,
        namespace: &str,
        added: u64,
        is_in_use: impl Fn(&Path) -> bool,
        now: SystemTime,
    ) -> Result<Vec<PathBuf>, Exceeded> {
        if self.fits(namespace, added) {
            return Ok(Vec::new());
        }
        let removable = |path: &Path, file: &LedgerFile| {
            let age = now.duration_since(file.last_use).unwrap_or_default();
            (file.proofs.is_some() && age > RECENT && !is_in_use(path)).then_some(file.last_use)
        };
        let (mut paths, mut held) = (Vec::new(), Vec::new());
        for (path, file) in &self.files {
            paths.push(path);
            let (namespace, bytes) = (&*file.namespace, file.bytes);
            held.push(Held { namespace, bytes, removable: removable(path, file) });
        }
        let reserved = self.reserved.iter();
        held.extend(reserved.map(|(namespace, bytes)| Held { namespace, bytes: *bytes, removable: None }));
        let chosen = make_room(&held, self.quotas, namespace, added)?;
        Ok(chosen.into_iter().filter_map(|at| paths.get(at).map(|path| (*path).clone())).collect())
    }

    fn fits(&self, namespace: &str, added: u64) -> bool {
        let own = self.used.get(namespace).copied().unwrap_or_default();
        let total: u64 = self.used.values().sum();
        own.saturating_add(added) <= self.quotas.per_namespace
            && total.saturating_add(added) <= self.quotas.total
    }
}

fn subtract(sums: &mut BTreeMap<String, u64>, namespace: &str, bytes: u64) {
    if let Some(sum) = sums.get_mut(namespace) {
        *sum = sum.saturating_sub(bytes);
        if *sum == 0 {
            sums.remove(namespace);
        }
    }
}
