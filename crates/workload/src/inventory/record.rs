//! The metadata of an object that records a revision of a release, as far as they are used.

use std::collections::BTreeMap;

use chandler_core::inventory::{ReleaseRecords, Sighting, StoredRevision};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    pages::{MAX_NAME, parse, read_limited},
    watch_error::WatchError,
};

/// Maximum number of bytes of the namespace and of the name of a release, which is the value of a label. API servers allow no
/// longer ones.
const MAX_LABEL: usize = 63;

/// An object that may record a revision.
#[derive(Debug, Default, Deserialize)]
pub struct Record {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Record {
    /// Reads an object.
    pub fn parse(object: &RawValue) -> Result<Self, WatchError> {
        let read = read_limited(object, |object| Ok(parse(object)));
        // No tool writes an object that is too large.
        let Ok(record) = read else { return Ok(Self::default()) };
        let record: Self = record?;
        if record.metadata.resource_version.as_ref().is_some_and(|version| version.len() > MAX_NAME) {
            return Err(WatchError::Unreadable);
        }
        Ok(record)
    }

    /// Returns the version of the object.
    pub fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref().filter(|version| !version.is_empty())
    }

    /// Returns the revision that the object records. `None` if it records none.
    pub fn revision(&self, records: &ReleaseRecords) -> Option<StoredRevision> {
        let Metadata { namespace, labels, .. } = &self.metadata;
        let revision = records.revision(namespace.as_deref()?, labels.as_ref()?)?;
        let names = [&revision.release.namespace, &revision.release.name];
        names.iter().all(|name| name.len() <= MAX_LABEL).then_some(revision)
    }

    /// Returns the version of the record, which is seen now.
    pub fn sighting(&self) -> Sighting {
        let resource_version = self.version().unwrap_or_default().to_owned();
        Sighting { resource_version, at: Timestamp::now() }
    }
}
