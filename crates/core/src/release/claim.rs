//! Two objects that claim one release on one cluster: the elder has it, the younger says so and keeps its hands off.

use jiff::Timestamp;

/// An object that claims a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    pub created: Option<Timestamp>,
    /// Namespace and name.
    pub name: String,
}

/// Whether a release is claimed by others too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    None,
    /// Ours, and others want it.
    Contested {
        by: String,
    },
    /// Another's.
    Taken {
        by: String,
    },
}

impl Collision {
    /// How `me` stands among all who claim the release, `me` included or not.
    pub fn among(me: &Claimant, all: &[Claimant]) -> Self {
        let others = || all.iter().filter(|claimant| *claimant != me);
        match others().min() {
            None => Self::None,
            Some(eldest) if eldest < me => Self::Taken { by: eldest.name.clone() },
            Some(_) => {
                let names: Vec<_> = others().map(|claimant| claimant.name.as_str()).collect();
                Self::Contested { by: names.join(", ") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(second: i64, name: &str) -> Claimant {
        Claimant { created: Timestamp::from_second(second).ok(), name: name.to_owned() }
    }

    #[test]
    fn the_elder_has_it_and_both_know() {
        let (elder, younger) = (claimant(1, "fleet/b"), claimant(2, "fleet/a"));
        let all = [elder.clone(), younger.clone()];
        assert_eq!(Collision::among(&elder, &all), Collision::Contested { by: "fleet/a".to_owned() });
        assert_eq!(Collision::among(&younger, &all), Collision::Taken { by: "fleet/b".to_owned() });
        assert_eq!(Collision::among(&elder, &all[..1]), Collision::None);
    }

    #[test]
    fn twins_are_told_apart_by_name() {
        let (a, b) = (claimant(1, "fleet/a"), claimant(1, "fleet/b"));
        let all = [b.clone(), a.clone()];
        assert!(matches!(Collision::among(&a, &all), Collision::Contested { .. }));
        assert!(matches!(Collision::among(&b, &all), Collision::Taken { .. }));
    }
}
