//! Checks what a request of a runtime hook says about a Kubernetes upgrade.
//!
//! Anyone who reaches the port can send a request. So only an upgrade that the cached objects show
//! is planned. If they do not show it, the cache may be older than the request: Cluster API has to
//! ask again.

use semver::Version;
use serde_json::Value;

use super::{TooManyMinors, UpgradeSteps};
use crate::resolution::parse_kubernetes_version;

/// The upgrade that a hook announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncedUpgrade<'a> {
    /// A whole upgrade, to the version of the Cluster's topology.
    Whole { from: &'a str, to: &'a str },
    /// The next step of an upgrade. Its version is at most that of the topology.
    Step { from: &'a str, to: &'a str },
}

/// The versions that the cached objects of a Cluster request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedVersions {
    /// The version of the Cluster's topology, to which it is upgraded.
    topology: Option<Version>,
    /// The version of the control plane. Cluster API writes one step after another to it.
    control_plane: Option<Version>,
}

/// An upgrade that is not planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnplannedUpgrade {
    /// The cache does not show it yet, for this reason.
    #[error("{0}")]
    NotSeenYet(String),
    /// It cannot be planned until a user changes its version.
    #[error("{0}")]
    Refused(String),
}

impl RequestedVersions {
    /// Reads the versions of a Cluster and of its control plane, if that is known.
    pub fn new(cluster: &Value, control_plane: Option<&Value>) -> Self {
        let version = |object: &Value, path| parse_kubernetes_version(object.pointer(path)?.as_str()?);
        Self {
            topology: version(cluster, "/spec/topology/version"),
            control_plane: control_plane.and_then(|object| version(object, "/spec/version")),
        }
    }

    /// Returns the steps of an announced upgrade if the cached objects show it.
    pub fn steps(&self, announced: AnnouncedUpgrade<'_>) -> Result<UpgradeSteps, UnplannedUpgrade> {
        let (AnnouncedUpgrade::Whole { from, to } | AnnouncedUpgrade::Step { from, to }) = announced;
        let (from, to) = (version(from)?, version(to)?);
        let topology = self.topology.as_ref();
        let is_requested = match announced {
            AnnouncedUpgrade::Whole { .. } => topology == Some(&to),
            AnnouncedUpgrade::Step { .. } => topology.is_some_and(|topology| to <= *topology),
        };
        if !is_requested {
            return Err(self.topology_not_seen(&to));
        }
        if let Some(seen) = self.control_plane.as_ref().filter(|seen| **seen != from) {
            return Err(UnplannedUpgrade::NotSeenYet(format!(
                "waiting until Chandler sees version {from} in the spec of the control plane, in which it sees {seen}"
            )));
        }
        UpgradeSteps::new(&from, &to)
            .map_err(|error: TooManyMinors| UnplannedUpgrade::Refused(error.to_string()))
    }

    /// Returns the version that a control plane was upgraded to, if the cached objects show it.
    ///
    /// Cluster API 1.11 names the version of the topology, which may be newer than that of the
    /// control plane.
    pub fn reached(&self, announced: &str) -> Result<Version, UnplannedUpgrade> {
        let reached = version(announced)?;
        let is_requested = self.topology.as_ref().is_some_and(|topology| reached <= *topology)
            || self.control_plane.as_ref() == Some(&reached);
        if is_requested { Ok(reached) } else { Err(self.topology_not_seen(&reached)) }
    }

    fn topology_not_seen(&self, announced: &Version) -> UnplannedUpgrade {
        let seen = self.topology.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        UnplannedUpgrade::NotSeenYet(format!(
            "waiting until Chandler sees version {announced} in the topology of the Cluster, in which it sees {seen}"
        ))
    }
}

fn version(text: &str) -> Result<Version, UnplannedUpgrade> {
    parse_kubernetes_version(text)
        .ok_or_else(|| UnplannedUpgrade::Refused(format!("{text:?} is not a version of Kubernetes")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requested(topology: &str, control_plane: Option<&str>) -> RequestedVersions {
        let cluster = json!({"spec": {"topology": {"version": topology}}});
        let control_plane = control_plane.map(|version| json!({"spec": {"version": version}}));
        RequestedVersions::new(&cluster, control_plane.as_ref())
    }

    fn whole<'a>(from: &'a str, to: &'a str) -> AnnouncedUpgrade<'a> {
        AnnouncedUpgrade::Whole { from, to }
    }

    fn step<'a>(from: &'a str, to: &'a str) -> AnnouncedUpgrade<'a> {
        AnnouncedUpgrade::Step { from, to }
    }

    #[test]
    fn an_upgrade_that_the_objects_show_is_planned() {
        let rows: [(_, _, _, &[&str]); 8] = [
            ("v1.35.4", Some("v1.34.4"), whole("v1.34.4", "v1.35.4"), &["1.35.4"]),
            ("v1.36.3", Some("v1.34.4"), whole("v1.34.4", "v1.36.3"), &["1.35.0", "1.36.3"]),
            ("v1.36.3", Some("v1.34.4"), step("v1.34.4", "v1.35.4"), &["1.35.4"]),
            ("v1.36.3", Some("v1.35.4"), step("v1.35.4", "v1.36.3"), &["1.36.3"]),
            ("v1.35.4+a", Some("v1.34.4+b"), whole("v1.34.4+vmware.1", "v1.35.4+vmware.1"), &["1.35.4"]),
            ("v1.35.4+b", Some("v1.35.4+a"), step("v1.35.4+a", "v1.35.4+b"), &["1.35.4"]),
            ("v1.35.0-rc.1", Some("v1.34.4"), whole("v1.34.4", "v1.35.0-rc.1"), &["1.35.0"]),
            ("v1.35.4", None, whole("v1.34.4", "v1.35.4"), &["1.35.4"]),
        ];
        for (topology, control_plane, announced, expected) in rows {
            let steps = requested(topology, control_plane).steps(announced).unwrap();
            let steps: Vec<_> = steps.versions().iter().map(ToString::to_string).collect();
            assert_eq!(steps, expected, "{announced:?}");
        }
    }

    #[test]
    fn a_cache_that_is_older_than_the_request_is_waited_for() {
        let rows = [
            ("v1.34.4", Some("v1.34.4"), whole("v1.34.4", "v1.35.4"), "version 1.35.4 in the topology"),
            ("v1.36.3", Some("v1.34.4"), whole("v1.34.4", "v1.35.4"), "in which it sees 1.36.3"),
            ("v1.35.4", Some("v1.34.4"), step("v1.34.4", "v1.36.3"), "version 1.36.3 in the topology"),
            (
                "v1.35.4",
                Some("v1.33.1"),
                whole("v1.34.4", "v1.35.4"),
                "1.34.4 in the spec of the control plane",
            ),
            ("v1.36.3", Some("v1.34.4"), step("v1.35.4", "v1.36.3"), "in which it sees 1.34.4"),
            ("unreadable", None, whole("v1.34.4", "v1.35.4"), "in which it sees none"),
            ("v1.35.4", Some("v1.34.4"), whole("v1.34.4", "v1.4294967295.0"), "in which it sees 1.35.4"),
        ];
        for (topology, control_plane, announced, expected) in rows {
            let error = requested(topology, control_plane).steps(announced).unwrap_err();
            let is_expected =
                matches!(&error, UnplannedUpgrade::NotSeenYet(message) if message.contains(expected));
            assert!(is_expected, "{announced:?}: {error:?}");
        }
        let no_topology = RequestedVersions::new(&json!({}), None).steps(whole("v1.34.4", "v1.35.4"));
        assert!(matches!(no_topology, Err(UnplannedUpgrade::NotSeenYet(_))), "{no_topology:?}");
    }

    #[test]
    fn an_upgrade_without_end_is_refused() {
        let endless = "v1.18446744073709551615.0";
        let rows = [
            ("v1.35.4", whole("v1.34.4", endless), "is not a version of Kubernetes"),
            ("v1.35.4", step(endless, "v1.35.4"), "is not a version of Kubernetes"),
            ("v1.35.4", whole("v1.34.4", "next"), "\"next\" is not a version of Kubernetes"),
            (endless, whole("v1.34.4", endless), "is not a version of Kubernetes"),
            ("v1.45.0", whole("v1.34.4", "v1.45.0"), "more than 10 minor versions; upgrade to 1.44 first"),
            ("v1.4294967295.0", step("v1.34.4", "v1.4294967295.0"), "more than 10 minor versions"),
        ];
        for (topology, announced, expected) in rows {
            let error = requested(topology, Some("v1.34.4")).steps(announced).unwrap_err();
            let is_expected =
                matches!(&error, UnplannedUpgrade::Refused(message) if message.contains(expected));
            assert!(is_expected, "{announced:?}: {error:?}");
        }
    }

    #[test]
    fn a_reached_version_is_that_of_an_upgrade() {
        let reached = |topology, control_plane, version| requested(topology, control_plane).reached(version);
        let version = Ok(Version::new(1, 35, 4));
        assert_eq!(reached("v1.35.4", Some("v1.35.4"), "v1.35.4"), version);
        assert_eq!(reached("v1.36.3", Some("v1.35.4"), "v1.35.4+vendor"), version, "a step");
        assert_eq!(reached("v1.35.4", Some("v1.34.4"), "v1.35.4"), version, "Cluster API 1.11");
        assert_eq!(reached("v1.34.4", Some("v1.35.4"), "v1.35.4"), version, "the topology went back");
        let older = reached("v1.34.4", Some("v1.34.4"), "v1.35.4");
        assert!(matches!(older, Err(UnplannedUpgrade::NotSeenYet(_))), "{older:?}");
        let endless = reached("v1.34.4", None, "v1.18446744073709551615.0");
        assert!(matches!(endless, Err(UnplannedUpgrade::Refused(_))), "{endless:?}");
    }
}
