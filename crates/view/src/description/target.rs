//! Which object is meant. Pure.

use super::{Description, Error};
use crate::fleet::{Fleet, Kind, Placement, Release, named};

/// What a person wrote.
#[derive(Debug)]
pub struct Target {
    /// Empty: any kind.
    kinds: Vec<&'static Kind>,
    name: String,
}

/// The object that is meant.
#[derive(Debug)]
pub enum Chosen<'a> {
    Placement(&'a Placement),
    Release(&'a Release),
}

impl Target {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((kind, name)) = text.split_once('/') else {
            return Ok(Self { kinds: Vec::new(), name: text.to_owned() });
        };
        let kinds = named(kind);
        if kinds.is_empty() {
            return Err(Error::UnknownKind { kind: kind.to_owned() });
        }
        Ok(Self { kinds, name: name.to_owned() })
    }

    /// Placements come before releases, because that is what people write.
    pub fn choose<'a>(&self, fleet: &'a Fleet, namespace: &str) -> Result<Chosen<'a>, Error> {
        let means = |kind: &str, name: &str| {
            name == self.name && (self.kinds.is_empty() || self.kinds.iter().any(|meant| meant.name == kind))
        };
        let placements = fleet.placements.iter().filter(|p| means(&p.object.kind, &p.object.name));
        let mut found: Vec<Chosen<'a>> = placements.map(Chosen::Placement).collect();
        if found.is_empty() {
            let releases = fleet.releases.iter().filter(|r| means(&r.object.kind, &r.object.name));
            found.extend(releases.map(Chosen::Release));
        }
        match found.len() {
            0 => Err(Error::NotFound { name: self.name.clone(), namespace: namespace.to_owned() }),
            1 => Ok(found.remove(0)),
            _ => Err(Error::Ambiguous {
                name: self.name.clone(),
                choices: found.iter().map(Chosen::written).collect(),
            }),
        }
    }
}

impl Chosen<'_> {
    fn written(&self) -> String {
        let object = match self {
            Self::Placement(placement) => &placement.object,
            Self::Release(release) => &release.object,
        };
        let kind = named(&object.kind).first().map_or(object.kind.as_str(), |kind| kind.short());
        format!("{kind}/{}", object.name)
    }

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

    fn chosen(fleet: &Fleet, text: &str) -> String {
        Target::parse(text)
            .and_then(|target| Ok(target.choose(fleet, "fleet")?.written()))
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_name_means_a_placement_first() {
        let mut fleet = fleet();
        assert_eq!(chosen(&fleet, "hello"), "hcp/hello");
        assert_eq!(chosen(&fleet, "HelmChartProxy/hello"), "hcp/hello");
        assert_eq!(chosen(&fleet, "hello-alpha"), "hrp/hello-alpha");
        assert_eq!(chosen(&fleet, "release/hello-alpha"), "hrp/hello-alpha");
        assert!(chosen(&fleet, "instance/hello").contains("chandler get --all-namespaces"));
        assert!(chosen(&fleet, "pod/hello").contains("there is no kind `pod`"));
        let mut other = release("hello", "alpha", &serde_json::json!({}));
        other.object.kind = "AddonRelease".to_owned();
        fleet.releases.push(other);
        let told = chosen(&fleet, "release/hello-alpha");
        assert!(told.ends_with("say hrp/hello-alpha or ar/hello-alpha"), "{told}");
    }
}
