//! Collisions of objects that claim the same release on a cluster: the oldest object wins, the others report a
//! collision.

use jiff::Timestamp;

/// An object that claims a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    pub created: Option<Timestamp>,
    /// Namespace and name.
    pub name: String,
    /// Whether the object is being deleted.
    pub deleting: bool,
}

/// Whether other objects claim the release of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    None,
    /// The release belongs to the object, but newer objects that are not being deleted claim it too.
    Contested {
        by: String,
    },
    /// The release belongs to an older object.
    Taken {
        by: String,
        /// Whether the older object is being deleted.
        deleting: bool,
    },
}

impl Collision {
    /// Returns the collision of `object` with `all` claimants, which may include `object` itself.
    pub fn among(object: &Claimant, all: &[Claimant]) -> Self {
        let others = || all.iter().filter(|claimant| claimant.name != object.name);
        match others().min() {
            None => Self::None,
            Some(oldest) if (&oldest.created, &oldest.name) < (&object.created, &object.name) => {
                Self::Taken { by: oldest.name.clone(), deleting: oldest.deleting }
            }
            Some(_) => {
                let remaining = others().filter(|claimant| !claimant.deleting);
                let names: Vec<_> = remaining.map(|claimant| claimant.name.as_str()).collect();
                if names.is_empty() { Self::None } else { Self::Contested { by: names.join(", ") } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(second: i64, name: &str) -> Claimant {
        Claimant { created: Timestamp::from_second(second).ok(), name: name.to_owned(), deleting: false }
    }

    #[test]
    fn the_older_object_wins_and_both_report_the_collision() {
        let (older, newer) = (claimant(1, "fleet/b"), claimant(2, "fleet/a"));
        let all = [older.clone(), newer.clone()];
        assert_eq!(Collision::among(&older, &all), Collision::Contested { by: "fleet/a".to_owned() });
        assert_eq!(
            Collision::among(&newer, &all),
            Collision::Taken { by: "fleet/b".to_owned(), deleting: false }
        );
        assert_eq!(Collision::among(&older, &all[..1]), Collision::None);
    }

    #[test]
    fn objects_that_are_being_deleted_do_not_contest_a_release() {
        let older = claimant(1, "fleet/b");
        let deleting = Claimant { deleting: true, ..claimant(2, "fleet/a") };
        assert_eq!(Collision::among(&older, &[older.clone(), deleting.clone()]), Collision::None);
        let older = Claimant { deleting: true, ..older };
        let taken = Collision::Taken { by: "fleet/b".to_owned(), deleting: true };
        assert_eq!(Collision::among(&deleting, &[older, deleting.clone()]), taken);
    }

    #[test]
    fn objects_of_the_same_age_are_ordered_by_name() {
        let (a, b) = (claimant(1, "fleet/a"), claimant(1, "fleet/b"));
        let all = [b.clone(), a.clone()];
        assert!(matches!(Collision::among(&a, &all), Collision::Contested { .. }));
        assert!(matches!(Collision::among(&b, &all), Collision::Taken { .. }));
    }
}
