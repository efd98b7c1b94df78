//! Extensions whose versions cannot be read, for example because their repository is down. Nothing is concluded from what is
//! missing: what runs is kept, and what needs them waits.

use std::collections::BTreeMap;

use super::ResolutionInput;
use crate::resolution::{Candidate, Universe, VersionName, unread_text};

/// Leaves only the running version to extensions that are unread. Whether others are compatible is unknown.
pub(super) fn keep_running_only(universe: &mut Universe, running: &BTreeMap<String, VersionName>) {
    for (name, published) in universe.extensions.iter_mut().filter(|(_, published)| published.is_unread) {
        let running = running.get(name);
        published
            .versions
            .retain(|known| running.is_some_and(|running| running.version == known.name.version));
    }
}

/// Returns the extensions whose choice of a version needs what is unread, and why: unread ones that do not run, and those that
/// depend on them. Another version could be chosen for a dependent, but it would be a guess.
pub(super) fn undecidable(
    universe: &Universe,
    running: &BTreeMap<String, VersionName>,
) -> BTreeMap<String, String> {
    let is_open = |name: &str| universe.extensions.get(name).is_some_and(|known| known.is_unread);
    let unread = universe.extensions.keys().filter(|name| is_open(name) && !running.contains_key(*name));
    let mut found: BTreeMap<_, _> = unread.map(|name| (name.clone(), unread_text(name))).collect();
    loop {
        let dependents = universe.extensions.iter().filter(|(name, _)| !found.contains_key(*name));
        let new: Vec<_> = dependents
            .filter_map(|(name, published)| {
                let running = running.get(name);
                let counts = |known: &&Candidate| match running {
                    Some(running) => running.version == known.name.version,
                    None => known.is_usable(),
                };
                let dependencies =
                    published.versions.iter().filter(counts).flat_map(|known| &known.dependencies);
                let needed = dependencies.filter(|needed| !needed.optional);
                let needed =
                    needed.map(|needed| &needed.extension).find(|needed| found.contains_key(*needed))?;
                Some((name.clone(), format!("{name} needs {needed}: {}", found[needed])))
            })
            .collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

impl ResolutionInput {
    /// Returns whether something is unread, so that it is unknown which dependencies are no longer needed.
    pub fn has_unread(&self) -> bool {
        self.universe.extensions.values().any(|published| published.is_unread)
    }

    /// Returns why it is unknown whether running extensions are compatible with another Kubernetes version.
    pub fn unread_running(&self) -> Vec<String> {
        let unread = self.universe.extensions.iter().filter(|(_, published)| published.is_unread);
        unread
            .filter(|(name, _)| self.running.contains_key(*name))
            .map(|(name, _)| unread_text(name))
            .collect()
    }
}

#[cfg(test)]
mod tests;
