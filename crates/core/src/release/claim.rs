//! Two objects that claim one release on one cluster: the older has it, the younger says so and keeps its hands off.

use jiff::Timestamp;

/// An object that claims a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    pub created: Option<Timestamp>,
    /// Namespace and name.
    pub name: String,
    /// It is being deleted, and will not want the release any more.
    pub deleting: bool,
}

/// Whether a release is claimed by others too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    None,
    /// Ours, and others want it, who will be there after us.
    Contested {
        by: String,
    },
    /// Another's.
    Taken {
        by: String,
        /// That one is being deleted.
        deleting: bool,
    },
}

impl Collision {
    /// How `me` stands among all who claim the release, `me` included or not.
    pub fn among(me: &Claimant, all: &[Claimant]) -> Self {
        let others = || all.iter().filter(|claimant| claimant.name != me.name);
        match others().min() {
            None => Self::None,
            Some(eldest) if (&eldest.created, &eldest.name) < (&me.created, &me.name) => {
                Self::Taken { by: eldest.name.clone(), deleting: eldest.deleting }
            }
            Some(_) => {
                let staying = others().filter(|claimant| !claimant.deleting);
                let names: Vec<_> = staying.map(|claimant| claimant.name.as_str()).collect();
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
    fn the_elder_has_it_and_both_know() {
        let (older, younger) = (claimant(1, "fleet/b"), claimant(2, "fleet/a"));
        let all = [older.clone(), younger.clone()];
        assert_eq!(Collision::among(&older, &all), Collision::Contested { by: "fleet/a".to_owned() });
        assert_eq!(
            Collision::among(&younger, &all),
            Collision::Taken { by: "fleet/b".to_owned(), deleting: false }
        );
        assert_eq!(Collision::among(&older, &all[..1]), Collision::None);
    }

    #[test]
    fn who_goes_leaves_nothing_to_others_who_go() {
        let older = claimant(1, "fleet/b");
        let deleting = Claimant { deleting: true, ..claimant(2, "fleet/a") };
        assert_eq!(Collision::among(&older, &[older.clone(), deleting.clone()]), Collision::None);
        let older = Claimant { deleting: true, ..older };
        let taken = Collision::Taken { by: "fleet/b".to_owned(), deleting: true };
        assert_eq!(Collision::among(&deleting, &[older, deleting.clone()]), taken);
    }

    #[test]
    fn twins_are_told_apart_by_name() {
        let (a, b) = (claimant(1, "fleet/a"), claimant(1, "fleet/b"));
        let all = [b.clone(), a.clone()];
        assert!(matches!(Collision::among(&a, &all), Collision::Contested { .. }));
        assert!(matches!(Collision::among(&b, &all), Collision::Taken { .. }));
    }
}
