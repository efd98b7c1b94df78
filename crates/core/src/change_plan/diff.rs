//! Unified diffs of objects, as YAML.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chandler_api::status::ObjectRecord;
use serde::{Serialize, Serializer};
use serde_json::Value;
use similar::TextDiff;

use super::{
    ObjectRole, ReleaseObject,
    mask::{hide, mask},
};
use crate::{health::group, parameters::SecretValues};

/// Lines around a change.
const CONTEXT: usize = 3;
/// After this time, the rest of two texts is compared roughly: the diff is correct, but longer than necessary.
const LIMIT: Duration = Duration::from_secs(5);
/// The name of an object that does not exist, in the header of a diff.
const NONE: &str = "/dev/null";

/// How an object changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ObjectChange {
    Added,
    Changed,
    Removed,
}

/// The change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    #[serde(flatten)]
    pub object: ObjectRecord,
    pub role: ObjectRole,
    pub change: ObjectChange,
    /// A unified diff. The data of Secrets, and values that come from Secrets, are masked.
    #[serde(skip_serializing_if = "DiffText::is_empty")]
    pub diff: DiffText,
}

/// The text of a diff. Clones share it: most clusters of a placement have the same diffs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiffText(Arc<str>);

impl DiffText {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for DiffText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for DiffText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What diffs show.
#[derive(Clone, Copy, Debug)]
pub struct DiffView {
    /// Whether they have texts. Otherwise only the changed objects are named.
    pub texts: bool,
    /// Whether values that come from Secrets are shown in other objects. The data of Secrets are never shown.
    pub show_secret_values: bool,
}

/// The texts of diffs so far, of which equal ones are stored once.
#[derive(Debug, Default)]
pub struct DiffTexts(BTreeSet<DiffText>);

impl DiffTexts {
    /// Lets objects share their texts with earlier ones.
    pub fn share(&mut self, objects: &mut [ObjectDiff]) {
        for object in objects {
            if let Some(known) = self.0.get(&object.diff) {
                object.diff = known.clone();
            } else {
                self.0.insert(object.diff.clone());
            }
        }
    }
}

/// Identifies an object in both revisions. The version of its API may change; objects with generated names are numbered.
type Key = (String, String, String, String, ObjectRole, usize);

/// Returns the changes from `old` to `new`, sorted by group, kind, namespace and name. Objects without a change are omitted. The
/// data of Secrets and all `secrets` are masked.
pub fn diff_objects(
    old: &[ReleaseObject],
    new: &[ReleaseObject],
    secrets: &SecretValues,
    view: DiffView,
) -> Vec<ObjectDiff> {
    let (old, new) = (by_key(old), by_key(new));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter_map(|key| diff(old.get(key).copied(), new.get(key).copied(), secrets, view))
        .collect()
}

fn by_key(objects: &[ReleaseObject]) -> BTreeMap<Key, &ReleaseObject> {
    let mut all = BTreeMap::new();
    for one in objects {
        let ObjectRecord { api_version, kind, namespace, name } = &one.object;
        let mut key =
            (group(api_version).to_owned(), kind.clone(), namespace.clone(), name.clone(), one.role, 0);
        while all.contains_key(&key) {
            key.5 += 1;
        }
        all.insert(key, one);
    }
    all
}

fn diff(
    old: Option<&ReleaseObject>,
    new: Option<&ReleaseObject>,
    secrets: &SecretValues,
    view: DiffView,
) -> Option<ObjectDiff> {
    let (change, object) = match (old, new) {
        (Some(old), Some(new)) if old.content == new.content => return None,
        (Some(_), Some(new)) => (ObjectChange::Changed, new),
        (None, Some(new)) => (ObjectChange::Added, new),
        (Some(old), None) => (ObjectChange::Removed, old),
        (None, None) => return None,
    };
    let name = object.object.to_string();
    let diff = if view.texts { unified(&name, (old, new), secrets) } else { String::new() };
    Some(ObjectDiff { object: object.object.clone(), role: object.role, change, diff: diff.into() })
}

/// Returns a unified diff without secret values.
fn unified(
    name: &str,
    (old, new): (Option<&ReleaseObject>, Option<&ReleaseObject>),
    secrets: &SecretValues,
) -> String {
    let (before, after) = mask(old.map(|old| &old.content), new.map(|new| &new.content));
    let (before, after) = hide(secrets, before, after);
    let (before_text, after_text) = (text(before.as_ref()), text(after.as_ref()));
    let header = |exists: bool| if exists { name } else { NONE };
    let mut config = TextDiff::configure();
    let lines = config.timeout(LIMIT).diff_lines(before_text.as_str(), after_text.as_str());
    lines
        .unified_diff()
        .context_radius(CONTEXT)
        .header(header(before.is_some()), header(after.is_some()))
        .to_string()
}

fn text(object: Option<&Value>) -> String {
    object.map(|object| serde_saphyr::to_string(object).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(content: Value) -> ReleaseObject {
        let text =
            |pointer: &str| content.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let object = ObjectRecord {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        };
        ReleaseObject { object, role: ObjectRole::Object, content }
    }

    const FULL: DiffView = DiffView { texts: true, show_secret_values: false };

    #[test]
    fn equal_texts_are_stored_once_and_none_without_texts() {
        let diff = |view| diff_objects(&[], &[config_map("new", "red")], &SecretValues::default(), view);
        let (mut texts, mut first, mut second) = (DiffTexts::default(), diff(FULL), diff(FULL));
        texts.share(&mut first);
        texts.share(&mut second);
        assert!(Arc::ptr_eq(&first[0].diff.0, &second[0].diff.0));
        let named = diff(DiffView { texts: false, ..FULL });
        assert!(named[0].diff.is_empty() && named[0].object == first[0].object);
        assert!(serde_json::to_value(&named[0]).unwrap().get("diff").is_none());
    }

    fn config_map(name: &str, color: &str) -> ReleaseObject {
        object(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"color": color},
        }))
    }

    #[test]
    fn changes_are_shown_as_unified_diffs_and_unchanged_objects_are_not() {
        let old = [config_map("gone", "red"), config_map("same", "red"), config_map("other", "red")];
        let new = [config_map("other", "blue"), config_map("same", "red"), config_map("new", "blue")];
        let changes = diff_objects(&old, &new, &SecretValues::default(), FULL);
        let found: Vec<_> = changes.iter().map(|one| (one.object.name.as_str(), one.change)).collect();
        assert_eq!(
            found,
            [("gone", ObjectChange::Removed), ("new", ObjectChange::Added), ("other", ObjectChange::Changed)]
        );
        assert_eq!(
            changes[2].diff.as_str(),
            "--- ConfigMap default/other\n+++ ConfigMap default/other\n@@ -1,6 +1,6 @@\n apiVersion: v1\n data:\n\
             -  color: red\n+  color: blue\n kind: ConfigMap\n metadata:\n   name: other\n"
        );
        assert!(changes[0].diff.as_str().starts_with("--- ConfigMap default/gone\n+++ /dev/null\n"));
        assert!(changes[1].diff.as_str().starts_with("--- /dev/null\n+++ ConfigMap default/new\n"));
    }

    #[test]
    fn a_secret_shows_that_a_key_has_changed_and_no_values() {
        let secret = |password: &str| {
            object(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "default"},
                "data": {"password": password, "user": "YWRtaW4="},
            }))
        };
        let changes = diff_objects(
            &[secret("Y2FuYXJ5MQ==")],
            &[secret("Y2FuYXJ5Mg==")],
            &SecretValues::default(),
            FULL,
        );
        let diff = changes[0].diff.as_str();
        assert!(diff.contains("+  password: <masked, changed>"), "{diff}");
        assert!(!diff.contains("Y2Fu") && !diff.contains("YWRtaW4="), "{diff}");
    }

    #[test]
    fn a_new_version_of_an_api_is_no_other_object_and_a_hook_is() {
        let at = |version: &str| {
            object(json!({
                "apiVersion": format!("policy/{version}"), "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            }))
        };
        let changes = diff_objects(&[at("v1beta1")], &[at("v1")], &SecretValues::default(), FULL);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].change, ObjectChange::Changed);
        let hook = ReleaseObject { role: ObjectRole::Hook, ..at("v1") };
        let changes = diff_objects(&[at("v1")], &[hook], &SecretValues::default(), FULL);
        assert_eq!(changes.len(), 2);
    }

    #[test]
    fn objects_with_generated_names_are_compared_in_their_order() {
        let generated = |image: &str| {
            object(json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "job-"}, "image": image,
            }))
        };
        let changes = diff_objects(
            &[generated("a"), generated("b")],
            &[generated("a"), generated("c")],
            &SecretValues::default(),
            FULL,
        );
        assert_eq!(changes.len(), 1);
        assert!(changes[0].diff.as_str().contains("+image: c"), "{:?}", changes[0].diff);
    }
}
