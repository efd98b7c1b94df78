//! Which objects of files are planned. Pure.

use std::{collections::BTreeSet, fmt};

use chandler_api::extensions::PlacementKindName;
use chandler_core::change_plan::IgnoredObject;
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::Error;

const ADDONS: &str = "addons.cluster.x-k8s.io";
const CHANDLER: &str = "chandler.dev";

/// A kind of objects that plans depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    Placement(PlacementKindName),
    Policy,
    Extension,
    Catalog,
    Source,
}

impl FileKind {
    /// Returns the kind of an object. `None` means that it is not planned.
    fn of(object: &DynamicObject) -> Option<Self> {
        let types = object.types.as_ref()?;
        let (group, _) = types.api_version.split_once('/')?;
        match (group, types.kind.as_str()) {
            (ADDONS, "HelmChartProxy") => Some(Self::Placement(PlacementKindName::HelmChartProxy)),
            (CHANDLER, "ExtensionInstance") => Some(Self::Placement(PlacementKindName::ExtensionInstance)),
            (CHANDLER, "AddonPolicy") => Some(Self::Policy),
            (CHANDLER, "Extension") => Some(Self::Extension),
            (CHANDLER, "ExtensionCatalog") => Some(Self::Catalog),
            (CHANDLER, "Source") => Some(Self::Source),
            _ => None,
        }
    }

    /// Returns the resource, in the version in which the object is written.
    pub fn resource(self, object: &DynamicObject) -> ApiResource {
        let (group, plural) = match self {
            Self::Placement(PlacementKindName::HelmChartProxy) => (ADDONS, "helmchartproxies"),
            Self::Placement(PlacementKindName::ExtensionInstance) => (CHANDLER, "extensioninstances"),
            Self::Policy => (CHANDLER, "addonpolicies"),
            Self::Extension => (CHANDLER, "extensions"),
            Self::Catalog => (CHANDLER, "extensioncatalogs"),
            Self::Source => (CHANDLER, "sources"),
        };
        let types = object.types.as_ref();
        let version = types.and_then(|types| types.api_version.split_once('/')).map(|(_, version)| version);
        let kind = GroupVersionKind::gvk(group, version.unwrap_or_default(), &self.to_string());
        ApiResource::from_gvk_with_plural(&kind, plural)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(kind) => kind.fmt(f),
            Self::Policy => f.write_str("AddonPolicy"),
            Self::Extension => f.write_str("Extension"),
            Self::Catalog => f.write_str("ExtensionCatalog"),
            Self::Source => f.write_str("Source"),
        }
    }
}

/// The objects of files.
#[derive(Debug)]
pub struct FileObjects {
    pub placements: Vec<(PlacementKindName, DynamicObject)>,
    /// What placements refer to.
    pub referenced: Vec<(FileKind, DynamicObject)>,
    pub ignored: Vec<IgnoredObject>,
}

impl FileObjects {
    /// Sorts objects by their kind. Fails if there is no placement, or if an object is there more than once.
    pub fn new(objects: Vec<DynamicObject>) -> Result<Self, Error> {
        let mut all = Self { placements: Vec::new(), referenced: Vec::new(), ignored: Vec::new() };
        let mut seen = BTreeSet::new();
        for object in objects {
            let Some(kind) = FileKind::of(&object) else {
                all.ignored.push(ignored(&object));
                continue;
            };
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            if !seen.insert((kind, namespace.clone(), name.clone())) {
                return Err(Error::Duplicate(format!("{kind} {namespace}/{name}")));
            }
            match kind {
                FileKind::Placement(kind) => all.placements.push((kind, object)),
                kind => all.referenced.push((kind, object)),
            }
        }
        if all.placements.is_empty() {
            return Err(Error::NoPlacements);
        }
        Ok(all)
    }
}

/// Names an object that is not planned.
pub fn ignored(object: &DynamicObject) -> IgnoredObject {
    let (api_version, kind) = object
        .types
        .as_ref()
        .map(|types| (types.api_version.clone(), types.kind.clone()))
        .unwrap_or_default();
    IgnoredObject {
        may_matter: api_version.split_once('/').is_some_and(|(group, _)| [ADDONS, CHANDLER].contains(&group)),
        api_version,
        kind,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, name: &str) -> DynamicObject {
        let metadata = json!({"name": name, "namespace": "fleet"});
        serde_json::from_value(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}))
            .unwrap()
    }

    #[test]
    fn objects_are_told_apart_by_group_and_kind() {
        let objects = vec![
            object("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy", "hello"),
            object("chandler.dev/v1alpha1", "ExtensionInstance", "hello"),
            object("chandler.dev/v1alpha1", "AddonPolicy", "hello"),
            object("chandler.dev/v1alpha1", "Extension", "hello"),
            object("chandler.dev/v1alpha1", "ExtensionCatalog", "hello"),
            object("chandler.dev/v1alpha1", "Source", "hello"),
            object("chandler.dev/v1alpha1", "Sync", "hello"),
            object("other.example/v1", "HelmChartProxy", "hello"),
            object("v1", "ConfigMap", "hello"),
        ];
        let FileObjects { placements, referenced, ignored } = FileObjects::new(objects).unwrap();
        let kinds: Vec<_> = placements.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [PlacementKindName::HelmChartProxy, PlacementKindName::ExtensionInstance]);
        let plurals: Vec<_> = referenced
            .iter()
            .map(|(kind, object)| kind.resource(object))
            .inspect(|resource| assert_eq!(resource.api_version, "chandler.dev/v1alpha1"))
            .map(|resource| resource.plural)
            .collect();
        assert_eq!(plurals, ["addonpolicies", "extensions", "extensioncatalogs", "sources"]);
        let ignored: Vec<_> = ignored.iter().map(|one| (one.kind.as_str(), one.may_matter)).collect();
        assert_eq!(ignored, [("Sync", true), ("HelmChartProxy", false), ("ConfigMap", false)]);
    }

    #[test]
    fn what_cannot_be_planned_is_an_error() {
        let chart = || object("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy", "hello");
        assert!(matches!(FileObjects::new(vec![]), Err(Error::NoPlacements)));
        let policy = object("chandler.dev/v1alpha1", "AddonPolicy", "hello");
        assert!(matches!(FileObjects::new(vec![policy]), Err(Error::NoPlacements)));
        let twice = FileObjects::new(vec![chart(), chart()]).unwrap_err();
        assert_eq!(twice.to_string(), "the files contain HelmChartProxy fleet/hello more than once");
    }
}
