//! The steps of a Kubernetes upgrade: one per minor version, and a limited number.

use semver::Version;

/// Maximum number of minor versions of one upgrade. Each takes a plan, and versions come from users
/// and from requests that anyone can send.
pub const MAX_UPGRADE_MINORS: u64 = 10;

/// The steps of a Kubernetes upgrade, from one to [`MAX_UPGRADE_MINORS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeSteps {
    from: Version,
    to: Vec<Version>,
}

/// An upgrade spans too many minor versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an upgrade of Kubernetes from {from} to {to} spans more than {MAX_UPGRADE_MINORS} minor versions; upgrade to {}.{} first",
    from.major,
    from.minor.saturating_add(MAX_UPGRADE_MINORS)
)]
pub struct TooManyMinors {
    pub from: Version,
    pub to: Version,
}

impl UpgradeSteps {
    /// Returns the steps of an upgrade. An upgrade within a minor version, and a downgrade, is one
    /// step.
    pub fn new(from: &Version, to: &Version) -> Result<Self, TooManyMinors> {
        if from.major == to.major && to.minor.saturating_sub(from.minor) > MAX_UPGRADE_MINORS {
            return Err(TooManyMinors { from: from.clone(), to: to.clone() });
        }
        let first = next_step(from, to);
        let steps = std::iter::successors(Some(first), |step| (step != to).then(|| next_step(step, to)));
        Ok(Self { from: from.clone(), to: steps.collect() })
    }

    pub fn from(&self) -> &Version {
        &self.from
    }

    /// Returns the version of the last step.
    pub fn to(&self) -> &Version {
        self.to.last().unwrap_or(&self.from)
    }

    /// Returns the version of each step.
    pub fn versions(&self) -> &[Version] {
        &self.to
    }
}

/// Returns the version of the next step of an upgrade, because a control plane cannot skip a minor
/// version. The patch version of a step before the last is not known; 0 stands for it.
pub(crate) fn next_step(from: &Version, to: &Version) -> Version {
    let next = from.minor.saturating_add(1);
    if from.major == to.major && next < to.minor { Version::new(from.major, next, 0) } else { to.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn an_upgrade_has_a_step_for_each_minor_version() {
        let rows: [(&str, &str, &[&str]); 6] = [
            ("1.34.2", "1.35.4", &["1.35.4"]),
            ("1.34.2", "1.36.1", &["1.35.0", "1.36.1"]),
            ("1.34.2", "1.34.4", &["1.34.4"]),
            ("1.34.2", "1.34.2", &["1.34.2"]),
            ("1.34.2", "1.32.0", &["1.32.0"]),
            ("1.34.2", "2.99.0", &["2.99.0"]),
        ];
        for (from, to, expected) in rows {
            let steps = UpgradeSteps::new(&version(from), &version(to)).unwrap();
            let expected: Vec<_> = expected.iter().map(|step| version(step)).collect();
            assert_eq!((steps.from(), steps.versions()), (&version(from), &*expected), "{from} to {to}");
        }
    }

    #[test]
    fn the_number_of_steps_is_limited() {
        let steps = |from, to| UpgradeSteps::new(&Version::new(1, from, 0), &Version::new(1, to, 0));
        assert_eq!(steps(34, 44).unwrap().versions().len(), 10);
        let error = steps(34, 45).unwrap_err().to_string();
        assert!(error.contains("1.34.0 to 1.45.0") && error.contains("upgrade to 1.44 first"), "{error}");
        assert!(steps(0, u64::MAX).is_err());
        assert_eq!(steps(u64::MAX - 1, u64::MAX).unwrap().versions().len(), 1);
        assert_eq!(steps(u64::MAX, u64::MAX).unwrap().versions().len(), 1);
    }
}
