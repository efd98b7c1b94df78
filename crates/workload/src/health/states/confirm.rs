//! Lists that show what is true after a moment, for what a watch alone does not prove: one that has stopped shows what was true
//! before.

use std::time::Duration;

use chandler_core::{health::Confirmation, identity::ReleaseId};
use jiff::Timestamp;

use super::{KindStates, Progress, States};
use crate::health::kind::{ObjectKind, SharedKind};

/// A kind that is not served or may not be read yet may be soon: its definition or a role belongs to the same update, or the API
/// server is starting.
const REFUSED_FOR: Duration = Duration::from_secs(15);

/// What a kind lacks for a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// It has to be listed.
    List,
    /// An answer is awaited.
    Answer,
    /// It cannot be listed.
    Refused,
}

impl States {
    /// Returns whether the objects of a release were listed after a moment, and whether kinds have to be listed again because of
    /// the question. Only kinds with a status are listed, or one of the others if there are none of them.
    pub fn confirm(&mut self, release: &ReleaseId, after: Timestamp) -> (Confirmation, bool) {
        let Some(kinds) = self.releases.get(release) else { return (Confirmation::Pending, false) };
        let mut to_confirm: Vec<SharedKind> =
            kinds.iter().filter(|kind| kind.has_status()).cloned().collect();
        if to_confirm.is_empty() {
            to_confirm.extend(kinds.first().cloned());
        }
        let (mut lacks, mut to_list) = (Vec::new(), Vec::new());
        for kind in to_confirm {
            // If it is not there, there are too many kinds to watch.
            let lack = self.kinds.get(&kind).map_or(Lack::Refused, |states| states.lack(after));
            if let Some(states) = self.kinds.get_mut(&kind) {
                states.is_awaited = matches!(lack, Lack::List | Lack::Answer);
            }
            if lack == Lack::List {
                to_list.push(kind);
            }
            lacks.push(lack);
        }
        let confirmation = if lacks.iter().any(|lack| matches!(lack, Lack::List | Lack::Answer)) {
            Confirmation::Pending
        } else if lacks.contains(&Lack::Refused) {
            Confirmation::Impossible
        } else {
            Confirmation::Confirmed
        };
        (confirmation, self.list_again(to_list))
    }

    /// Takes in that the cluster has refused to list a kind: it is not served, or Chandler may not read it. Returns the releases
    /// that wait for a list.
    pub fn refused(&mut self, kind: &ObjectKind, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        states.refused_at = Some(now);
        if std::mem::take(&mut states.is_awaited) { self.complete_users(kind) } else { Vec::new() }
    }
}

impl KindStates {
    fn lack(&self, after: Timestamp) -> Lack {
        let is_refused = self
            .refused_at
            .is_some_and(|at| after.checked_add(REFUSED_FOR).is_ok_and(|refused_for| at >= refused_for));
        let is_listed =
            self.progress == Progress::Listed && self.list_began.is_some_and(|began| began >= after);
        if is_refused {
            Lack::Refused
        } else if self.is_outdated {
            Lack::Answer
        } else if !is_listed {
            Lack::List
        } else if self.absences.next_check().is_some() {
            // Whether an object exists that the list does not show.
            Lack::Answer
        } else {
            Lack::Nothing
        }
    }
}
