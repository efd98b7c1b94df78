//! Finds the placement or release that a `[KIND/]NAME` argument names. Pure.

use super::{Description, Error};
use crate::fleet::{Fleet, Kind, Placement, Release, find_kinds};

/// A parsed `[KIND/]NAME` argument.
#[derive(Debug)]
pub struct ResourceArgument {
    /// Empty means any kind.
    kinds: Vec<&'static Kind>,
    name: String,
}

/// The placement or release that an argument names.
#[derive(Debug)]
pub enum FoundResource<'a> {
    Placement(&'a Placement),
    Release(&'a Release),
}

impl ResourceArgument {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((kind, name)) = text.split_once('/') else {
            return Ok(Self { kinds: Vec::new(), name: text.to_owned() });
        };
        let kinds = find_kinds(kind);
        if kinds.is_empty() {
            return Err(Error::UnknownKind { kind: kind.to_owned() });
        }
        Ok(Self { kinds, name: name.to_owned() })
    }

    /// Finds the only object with this name. Looks for a release only if no placement matches, because users name
    /// placements.
    pub fn find<'a>(&self, fleet: &'a Fleet, namespace: &str) -> Result<FoundResource<'a>, Error> {
        let matches = |kind: &str, name: &str| {
            name == self.name
                && (self.kinds.is_empty() || self.kinds.iter().any(|allowed| allowed.name == kind))
        };
        let placements = fleet.placements.iter().filter(|p| matches(&p.object.kind, &p.object.name));
        let mut found: Vec<FoundResource<'a>> = placements.map(FoundResource::Placement).collect();
        if found.is_empty() {
            let releases = fleet.releases.iter().filter(|r| matches(&r.object.kind, &r.object.name));
            found.extend(releases.map(FoundResource::Release));
        }
        match found.len() {
            0 => Err(Error::NotFound { name: self.name.clone(), namespace: namespace.to_owned() }),
            1 => Ok(found.remove(0)),
            _ => Err(Error::Ambiguous {
                name: self.name.clone(),
                candidates: found.iter().map(FoundResource::argument).collect(),
            }),
        }
    }
}

impl FoundResource<'_> {
    /// Returns the `KIND/NAME` argument that names this object.
    fn argument(&self) -> String {
        match self {
            Self::Placement(placement) => placement.object.argument(),
            Self::Release(release) => release.object.argument(),
        }
    }

    /// Describes the object. If a cluster is given, only the releases on that cluster are included.
    pub fn describe(&self, fleet: &Fleet, cluster: Option<&str>) -> Description {
        match self {
            Self::Placement(placement) => Description::of_placement(fleet, placement, cluster),
            Self::Release(release) => Description::of_release(release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{fleet, release};

    fn find(fleet: &Fleet, text: &str) -> String {
        ResourceArgument::parse(text)
            .and_then(|argument| Ok(argument.find(fleet, "fleet")?.argument()))
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn placements_are_found_before_releases() {
        let mut fleet = fleet();
        assert_eq!(find(&fleet, "hello"), "hcp/hello");
        assert_eq!(find(&fleet, "HelmChartProxy/hello"), "hcp/hello");
        assert_eq!(find(&fleet, "hello-alpha"), "hrp/hello-alpha");
        assert_eq!(find(&fleet, "release/hello-alpha"), "hrp/hello-alpha");
        assert!(find(&fleet, "instance/hello").contains("chandler get --all-namespaces"));
        assert!(find(&fleet, "pod/hello").contains("unknown kind `pod`"));
        let mut other = release("hello", "alpha", &serde_json::json!({}));
        other.object.kind = "AddonRelease".to_owned();
        fleet.releases.push(other);
        let error = find(&fleet, "release/hello-alpha");
        assert!(error.ends_with("use hrp/hello-alpha or ar/hello-alpha"), "{error}");
    }
}
