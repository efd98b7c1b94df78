//! The release records that the tool declares, read as Chandler reads them: metadata only.

use chandler_core::digest::InputMark;
use chandler_tool::generated::tool::ReleaseRecords;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::{PartialObjectMeta, WatchEvent},
    discovery::ApiResource,
};

use super::{CaseError, context::Context};

/// The values of the status label.
pub const STATUSES: [&str; 8] = [
    "deployed",
    "failed",
    "superseded",
    "uninstalled",
    "uninstalling",
    "pending-install",
    "pending-upgrade",
    "pending-rollback",
];

/// Label of a record with the digest of the inputs that were rolled back, in the form of an [`InputMark`].
const ROLLED_BACK_LABEL: &str = "chandler.dev/rolled-back";

/// Where the tool stores its releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    pub resource: ApiResource,
    pub label_selector: String,
    object_name: String,
    release_label: String,
    revision_label: String,
    status_label: String,
    time_labels: Vec<String>,
}

/// One revision, as the metadata of its object shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub object: String,
    pub revision: u32,
    pub status: String,
    pub mark: Option<InputMark>,
    /// The inputs that a rollback has rolled back.
    pub rolled_back: Option<InputMark>,
    /// Seconds since the Unix epoch.
    pub updated: Option<i64>,
}

impl Record {
    /// Returns the digest of the inputs that created this very revision, or an empty text.
    pub fn input_digest(&self) -> &str {
        self.digest(self.mark.as_ref())
    }

    /// Returns the digest of the inputs that the rollback which created this very revision has rolled back, or an empty text.
    pub fn rolled_back_digest(&self) -> &str {
        self.digest(self.rolled_back.as_ref())
    }

    fn digest<'a>(&self, mark: Option<&'a InputMark>) -> &'a str {
        let own = mark.filter(|mark| mark.revision == self.revision);
        own.map_or("", |mark| mark.digest.as_str())
    }
}

impl Records {
    /// Reads the declaration. Returns what is wrong with it if Chandler cannot use it.
    pub fn read(declared: Option<&ReleaseRecords>) -> Result<Self, String> {
        let Some(declared) = declared else { return Err("Describe declares no records".to_owned()) };
        let ReleaseRecords {
            api_version,
            kind,
            plural,
            label_selector,
            object_name,
            release_label,
            revision_label,
            status_label,
            time_labels,
            // It may be empty.
            object_label_selector: _,
        } = declared.clone();
        let fields = [
            ("api_version", &api_version),
            ("kind", &kind),
            ("plural", &plural),
            ("label_selector", &label_selector),
            ("object_name", &object_name),
            ("release_label", &release_label),
            ("revision_label", &revision_label),
            ("status_label", &status_label),
        ];
        if let Some((name, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
            return Err(format!("the records that Describe declares have no {name}"));
        }
        for placeholder in ["{release}", "{revision}"] {
            if object_name.matches(placeholder).count() != 1 {
                return Err(format!("the object name {object_name:?} has {placeholder} not exactly once"));
            }
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let (group, version) = (group.to_owned(), version.to_owned());
        Ok(Self {
            resource: ApiResource { group, version, api_version, kind, plural },
            label_selector,
            object_name,
            release_label,
            revision_label,
            status_label,
            time_labels,
        })
    }

    /// Returns the name of a revision's object.
    pub fn object_name(&self, release: &str, revision: u32) -> String {
        self.object_name.replace("{release}", release).replace("{revision}", &revision.to_string())
    }

    /// Returns the selector of all records of a release.
    fn selector(&self, release: &str) -> String {
        format!("{},{}={release}", self.label_selector, self.release_label)
    }

    fn record(&self, release: &str, object: &impl kube::ResourceExt) -> Result<Record, CaseError> {
        let (name, labels) = (object.name_any(), object.labels());
        let label = |key: &str| labels.get(key).map(String::as_str);
        let revision = label(&self.revision_label).and_then(|text| text.parse().ok()).ok_or_else(|| {
            CaseError::Violation(format!(
                "the record {name} has no revision in the label {}",
                self.revision_label
            ))
        })?;
        let status = label(&self.status_label).unwrap_or_default().to_owned();
        ensure!(STATUSES.contains(&&*status), "the record {name} has the status {status:?}");
        let expected = self.object_name(release, revision);
        ensure!(
            name == expected,
            "the record of revision {revision} is called {name}, declared is {expected}"
        );
        let mark = label(InputMark::LABEL).and_then(InputMark::parse);
        let rolled_back = label(ROLLED_BACK_LABEL).and_then(InputMark::parse);
        let updated = self.time_labels.iter().find_map(|key| label(key)).map(str::parse).transpose();
        let updated = updated.map_err(|_| {
            CaseError::Violation(format!("a time label of the record {name} is not a number of seconds"))
        })?;
        ensure!(
            updated.is_some() || self.time_labels.is_empty(),
            "the record {name} has none of the labels {:?}",
            self.time_labels
        );
        Ok(Record { object: name, revision, status, mark, rolled_back, updated })
    }
}

impl Context {
    /// Returns the API of the declared records in the case's namespace.
    pub fn record_api(&self) -> Result<Api<DynamicObject>, CaseError> {
        Ok(self.dynamic(&self.profile.records()?.resource))
    }

    /// Returns the records of a release, newest first.
    pub async fn records(&self, release: &str) -> Result<Vec<Record>, CaseError> {
        let declared = self.profile.records()?;
        let selected = ListParams::default().labels(&declared.selector(release));
        let found = self.record_api()?.list_metadata(&selected).await?;
        let records: Result<Vec<_>, _> =
            found.items.iter().map(|object| declared.record(release, object)).collect();
        let mut records = records?;
        records.sort_by_key(|record| std::cmp::Reverse(record.revision));
        Ok(records)
    }

    /// Returns the newest record of a release, which must exist.
    pub async fn newest_record(&self, release: &str) -> Result<Record, CaseError> {
        let newest = self.records(release).await?.into_iter().next();
        newest.ok_or_else(|| CaseError::Violation(format!("there is no record of the release {release}")))
    }

    /// Sets the input label of a revision, as Chandler does for a release that it adopts.
    pub async fn set_mark(&self, release: &str, revision: u32, mark: &InputMark) -> Result<(), CaseError> {
        let name = self.profile.records()?.object_name(release, revision);
        let patch = serde_json::json!({"metadata": {"labels": {InputMark::LABEL: mark.to_string()}}});
        self.record_api()?.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Reads a watch event of a release's record. `None` for events that are not about a record.
    pub fn watched(
        &self,
        release: &str,
        event: &WatchEvent<PartialObjectMeta<DynamicObject>>,
    ) -> Result<Option<Record>, CaseError> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                self.profile.records()?.record(release, object).map(Some)
            }
            WatchEvent::Bookmark(_) => Ok(None),
            WatchEvent::Error(status) => Err(CaseError::Host(status.message.clone().into())),
        }
    }

    /// Returns the selector of a release's records.
    pub fn record_selector(&self, release: &str) -> Result<String, CaseError> {
        Ok(self.profile.records()?.selector(release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helm() -> ReleaseRecords {
        ReleaseRecords {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            plural: "secrets".to_owned(),
            label_selector: "owner=helm".to_owned(),
            object_name: "sh.helm.release.v1.{release}.v{revision}".to_owned(),
            release_label: "name".to_owned(),
            revision_label: "version".to_owned(),
            status_label: "status".to_owned(),
            time_labels: vec!["modifiedAt".to_owned(), "createdAt".to_owned()],
            object_label_selector: "app.kubernetes.io/managed-by=Helm".to_owned(),
        }
    }

    fn object(labels: &serde_json::Value) -> DynamicObject {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "sh.helm.release.v1.web.v2", "labels": labels},
        }))
        .unwrap()
    }

    #[test]
    fn a_record_is_read_from_its_labels() {
        let records = Records::read(Some(&helm())).unwrap();
        assert_eq!(records.object_name("web", 2), "sh.helm.release.v1.web.v2");
        let mark = format!("{}.2", "a".repeat(40));
        let labels = serde_json::json!({"version": "2", "status": "deployed", "createdAt": "7", "chandler.dev/input": mark});
        let record = records.record("web", &object(&labels)).unwrap();
        assert_eq!((record.revision, &*record.status, record.updated), (2, "deployed", Some(7)));
        assert_eq!(record.input_digest(), "a".repeat(40));
    }

    #[test]
    fn a_mark_of_another_revision_is_not_the_records_own() {
        let records = Records::read(Some(&helm())).unwrap();
        let mark = format!("{}.1", "a".repeat(40));
        let labels = serde_json::json!({"version": "2", "status": "failed", "createdAt": "7", "chandler.dev/input": mark});
        assert_eq!(records.record("web", &object(&labels)).unwrap().input_digest(), "");
    }

    #[test]
    fn wrong_records_are_violations() {
        let records = Records::read(Some(&helm())).unwrap();
        for labels in [
            serde_json::json!({"status": "deployed", "createdAt": "7"}),
            serde_json::json!({"version": "2", "status": "Deployed", "createdAt": "7"}),
            serde_json::json!({"version": "3", "status": "deployed", "createdAt": "7"}),
            serde_json::json!({"version": "2", "status": "deployed"}),
        ] {
            assert!(records.record("web", &object(&labels)).is_err(), "{labels}");
        }
    }

    #[test]
    fn an_incomplete_declaration_is_refused() {
        assert!(Records::read(None).is_err());
        for incomplete in [
            ReleaseRecords { kind: String::new(), ..helm() },
            ReleaseRecords { object_name: "release.{release}".to_owned(), ..helm() },
            ReleaseRecords { status_label: String::new(), ..helm() },
        ] {
            assert!(Records::read(Some(&incomplete)).is_err(), "{incomplete:?}");
        }
    }
}
