//! Where the watches of the kinds are continued.

use super::{Progress, States};
use crate::health::{
    kind::{ObjectKind, SharedKind},
    source::{Position, Source},
};

impl States {
    /// Returns the version at which the watch of a kind is continued. `None` means that the objects have to be listed.
    pub fn version(&self, kind: &ObjectKind, source: &Source) -> Option<String> {
        let states = self.kinds.get(kind)?;
        if states.must_list() || states.progress != Progress::Listed {
            return None;
        }
        let position = states.position.as_ref().filter(|position| *position.source == *source)?;
        Some(position.version.clone())
    }

    /// Takes in how far the watch of a kind has come. Without a list, its events do not show all objects.
    pub fn advance(&mut self, kind: &ObjectKind, position: Position) {
        let listed = self.kinds.get_mut(kind).filter(|states| states.progress == Progress::Listed);
        if let Some(states) = listed {
            states.position = Some(position);
        }
    }

    /// Takes in that the watch of a kind cannot be continued.
    pub fn lose_position(&mut self, kind: &ObjectKind) {
        if let Some(states) = self.kinds.get_mut(kind) {
            states.position = None;
        }
    }

    /// Returns the versions that the watches have come to.
    pub fn versions(&self) -> Vec<(SharedKind, u64)> {
        let versions = self.kinds.iter().filter_map(|(kind, states)| {
            let position = states.position.as_ref()?;
            Some((kind.clone(), position.version.parse().ok()?))
        });
        versions.collect()
    }

    /// Takes in the version of a list that has begun after the watches had come to `versions`. A watch that is ahead of it has
    /// seen events that a restored backup does not contain: it would show nothing until the server has come as far again, so its
    /// kind is listed again. Kinds of an API server with a storage of its own have other versions: to list them is harmless.
    pub fn list_kinds_ahead(&mut self, versions: Vec<(SharedKind, u64)>, list_version: &str) -> bool {
        let Ok(list_version) = list_version.parse::<u64>() else { return false };
        let ahead = versions.into_iter().filter(|(_, version)| *version > list_version);
        self.list_again(ahead.map(|(kind, _)| kind).collect())
    }
}
