//! Each revision of a release is recorded in a ConfigMap.

use std::collections::BTreeMap;

use chandler_core::digest::InputMark;
use chandler_tool::generated::tool::{
    ApplyMethod, Release, ReleaseRecords, ReleaseState, ReleaseStatus, Revision,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use prost_types::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    cluster::Cluster,
    failure::{Category, Failure},
    objects::Reference,
};

const SELECTOR: &str = "manifest-tool.chandler.dev/record=true";
const RECORD: &str = "manifest-tool.chandler.dev/record";
const RELEASE: &str = "manifest-tool.chandler.dev/release";
const REVISION: &str = "manifest-tool.chandler.dev/revision";
const STATUS: &str = "manifest-tool.chandler.dev/status";
const UPDATED: &str = "manifest-tool.chandler.dev/updated";
/// Key of a ConfigMap's data.
const CONTENT: &str = "record";

const STATUSES: [(ReleaseStatus, &str); 7] = [
    (ReleaseStatus::Deployed, "deployed"),
    (ReleaseStatus::Failed, "failed"),
    (ReleaseStatus::Superseded, "superseded"),
    (ReleaseStatus::Uninstalled, "uninstalled"),
    (ReleaseStatus::Uninstalling, "uninstalling"),
    (ReleaseStatus::PendingInstall, "pending-install"),
    (ReleaseStatus::PendingUpgrade, "pending-upgrade"),
];

/// Returns the declaration of the records.
pub fn declaration() -> ReleaseRecords {
    ReleaseRecords {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        plural: "configmaps".to_owned(),
        label_selector: SELECTOR.to_owned(),
        object_name: object_name("{release}", "{revision}"),
        release_label: RELEASE.to_owned(),
        revision_label: REVISION.to_owned(),
        status_label: STATUS.to_owned(),
        time_labels: vec![UPDATED.to_owned()],
        // The objects have no common label.
        object_label_selector: String::new(),
    }
}

fn object_name(release: &str, revision: &str) -> String {
    format!("manifest-tool.{release}.v{revision}")
}

/// One revision of a release.
#[derive(Clone, Debug)]
pub struct Record {
    pub revision: u32,
    pub status: ReleaseStatus,
    pub input_digest: String,
    pub content: Content,
    /// Resource version of the ConfigMap that was read or written last.
    pub version: Option<String>,
}

/// What the labels do not contain. No values: anyone may read a ConfigMap.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    pub package_name: String,
    pub package_version: String,
    pub app_version: String,
    pub values_digest: String,
    pub description: String,
    /// Seconds since the Unix epoch.
    pub first_deployed: i64,
    pub last_deployed: i64,
    pub objects: Vec<Reference>,
}

impl Record {
    /// Sets the status of a revision that an operation has changed.
    pub fn set(&mut self, status: ReleaseStatus, description: impl Into<String>) {
        self.status = status;
        self.content.description = description.into();
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.status, ReleaseStatus::PendingInstall | ReleaseStatus::PendingUpgrade)
    }

    pub fn state(&self, release: &Release) -> ReleaseState {
        let Content { package_name, package_version, app_version, values_digest, description, .. } =
            self.content.clone();
        ReleaseState {
            release: Some(release.clone()),
            revision: self.revision,
            status: self.status.into(),
            package_name,
            package_version,
            app_version,
            input_digest: self.input_digest.clone(),
            values_digest,
            inventory: self.content.objects.iter().map(Reference::message).collect(),
            first_deployed: Some(timestamp(self.content.first_deployed)),
            last_deployed: Some(timestamp(self.content.last_deployed)),
            description,
            method: ApplyMethod::ServerSide.into(),
            history: Vec::new(),
            rolled_back_digest: String::new(),
        }
    }

    pub fn past(&self) -> Revision {
        Revision {
            revision: self.revision,
            status: self.status.into(),
            package_version: self.content.package_version.clone(),
            updated: Some(timestamp(self.content.last_deployed)),
            description: self.content.description.clone(),
        }
    }

    fn read(object: &ConfigMap) -> Option<Self> {
        let label = |key: &str| object.labels().get(key).map(String::as_str);
        let revision: u32 = label(REVISION)?.parse().ok()?;
        let status = STATUSES.iter().find(|(_, name)| label(STATUS) == Some(*name))?.0;
        // A mark of another revision is not this one's.
        let digest = label(InputMark::LABEL).and_then(|mark| mark.strip_suffix(&format!(".{revision}")));
        let content = serde_json::from_str(object.data.as_ref()?.get(CONTENT)?).ok()?;
        let input_digest = digest.unwrap_or_default().to_owned();
        Some(Self { revision, status, input_digest, content, version: object.resource_version() })
    }

    fn status_name(&self) -> &'static str {
        STATUSES.iter().find(|(status, _)| *status == self.status).map_or("failed", |(_, name)| name)
    }
}

/// The records of a release on a cluster.
pub struct Records<'a> {
    cluster: &'a Cluster,
    release: &'a Release,
    api: Api<ConfigMap>,
}

impl<'a> Records<'a> {
    pub fn new(cluster: &'a Cluster, release: &'a Release) -> Self {
        let api = Api::namespaced(cluster.client.clone(), &release.namespace);
        Self { cluster, release, api }
    }

    /// Returns the records, newest first.
    pub async fn list(&self) -> Result<Vec<Record>, Failure> {
        let selector = format!("{SELECTOR},{RELEASE}={}", self.release.name);
        let list = self.cluster.request(self.api.list(&ListParams::default().labels(&selector))).await?;
        let mut records: Vec<_> = list.items.iter().filter_map(Record::read).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.revision));
        Ok(records)
    }

    /// Creates the record of a new revision. Fails with CONFLICT if another operation has created it.
    pub async fn create(&self, record: &mut Record) -> Result<(), Failure> {
        let mut labels = changing_labels(record);
        labels.extend([
            (RECORD.to_owned(), "true".to_owned()),
            (RELEASE.to_owned(), self.release.name.clone()),
            (REVISION.to_owned(), record.revision.to_string()),
        ]);
        if !record.input_digest.is_empty() {
            let mark = format!("{}.{}", record.input_digest, record.revision);
            labels.insert(InputMark::LABEL.to_owned(), mark);
        }
        let mut object = ConfigMap::default();
        object.metadata.name = Some(self.name(record));
        object.metadata.labels = Some(labels);
        object.data = Some([(CONTENT.to_owned(), content(record)?)].into());
        let created = self.cluster.request(self.api.create(&PostParams::default(), &object)).await?;
        record.version = created.resource_version();
        Ok(())
    }

    /// Writes a changed status. Fails with CONFLICT if another client has changed the record.
    pub async fn save(&self, record: &mut Record) -> Result<(), Failure> {
        let metadata = json!({"labels": changing_labels(record), "resourceVersion": record.version});
        let patch = Patch::Merge(json!({"metadata": metadata, "data": {CONTENT: content(record)?}}));
        let name = self.name(record);
        let saved = self.cluster.request(self.api.patch(&name, &PatchParams::default(), &patch)).await?;
        record.version = saved.resource_version();
        Ok(())
    }

    pub async fn delete(&self, record: &Record) -> Result<(), Failure> {
        let name = self.name(record);
        let deleted = self.cluster.request(self.api.delete(&name, &DeleteParams::default())).await;
        match deleted {
            Err(failure) if failure.missing => Ok(()),
            other => other.map(drop),
        }
    }

    fn name(&self, record: &Record) -> String {
        object_name(&self.release.name, &record.revision.to_string())
    }
}

/// Returns the labels that change with the status.
fn changing_labels(record: &Record) -> BTreeMap<String, String> {
    [(STATUS.to_owned(), record.status_name().to_owned()), (UPDATED.to_owned(), now().to_string())].into()
}

fn content(record: &Record) -> Result<String, Failure> {
    serde_json::to_string(&record.content)
        .map_err(|error| Failure::new(Category::Internal, error.to_string()))
}

/// Returns the seconds since the Unix epoch.
pub fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or_default()
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}
