//! Lists that show what is true after a moment, for what a watch alone does not prove: one that has
//! stopped shows what was true before.

use std::time::Duration;

use chandler_core::{health::Confirmation, identity::ReleaseId};
use jiff::Timestamp;

use super::{KindStates, Progress, States};
use crate::health::kind::{ObjectKind, SharedKind};

/// A kind that is not served or may not be read yet may be soon: its definition or a role belongs
/// to the same update, or the API server is starting.
const REFUSED_FOR: Duration = Duration::from_secs(15);

impl States {
    /// Returns whether the objects of a release were listed after a moment, and whether kinds have
    /// to be listed again because of the question. Only kinds with a status are listed, or one of
    /// the others if there are none of them.
    pub fn confirm(&mut self, release: &ReleaseId, after: Timestamp) -> (Confirmation, bool) {
        let Some(kinds) = self.releases.get(release) else { return (Confirmation::Pending, false) };
        let mut to_confirm: Vec<SharedKind> =
            kinds.iter().filter(|kind| kind.has_status()).cloned().collect();
        if to_confirm.is_empty() {
            to_confirm.extend(kinds.first().cloned());
        }
        let (mut confirmation, mut to_list) = (Confirmation::Confirmed, Vec::new());
        for kind in to_confirm {
            let Some(states) = self.kinds.get_mut(&kind) else {
                // There are too many kinds to watch.
                confirmation = confirmation.max(Confirmation::Impossible);
                continue;
            };
            let of_kind = states.confirmation(after);
            states.is_awaited = of_kind == Confirmation::Pending;
            confirmation = confirmation.max(of_kind);
            if states.is_awaited && states.needs_list(after) {
                to_list.push(kind);
            }
        }
        (confirmation, self.list_again(to_list))
    }

    /// Records that the cluster has refused to list a kind: it is not served, or Chandler may not
    /// read it. Returns the releases that wait for a list.
    pub fn refused(&mut self, kind: &ObjectKind, now: Timestamp) -> Vec<ReleaseId> {
        let Some(states) = self.kinds.get_mut(kind) else { return Vec::new() };
        states.refused_at = Some(now);
        if std::mem::take(&mut states.is_awaited) { self.complete_users(kind) } else { Vec::new() }
    }
}

impl KindStates {
    fn confirmation(&self, after: Timestamp) -> Confirmation {
        let is_refused = self
            .refused_at
            .is_some_and(|at| after.checked_add(REFUSED_FOR).is_ok_and(|refused_for| at >= refused_for));
        if is_refused {
            Confirmation::Impossible
        } else if self.is_outdated || self.needs_list(after) || self.absences.next_check().is_some() {
            // The last is about whether an object exists that the list does not show.
            Confirmation::Pending
        } else {
            Confirmation::Confirmed
        }
    }

    /// Returns whether no list has begun after a moment, and none is going to.
    fn needs_list(&self, after: Timestamp) -> bool {
        let is_listed =
            self.progress == Progress::Listed && self.list_began.is_some_and(|began| began >= after);
        !self.is_outdated && !is_listed
    }
}
