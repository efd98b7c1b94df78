//! Descriptions of tools on disk, so that a manager that has nothing to do need not start a tool.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use chandler_core::digest::Digest;
use prost::Message as _;
use tempfile::NamedTempFile;

use crate::generated::tool::DescribeResponse;

/// The file that holds the description of one binary. It is named after the binary's path, size and time of change, so that
/// another binary has another file.
#[derive(Clone, Debug)]
pub struct DescriptionCache {
    file: PathBuf,
}

impl DescriptionCache {
    /// Returns `None` if the binary cannot be read, so that starting it reports why.
    pub fn new(folder: &Path, binary: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(binary).ok()?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let identity = format!("{}\n{}\n{}", binary.display(), metadata.len(), changed.as_nanos());
        Some(Self { file: folder.join(format!("{}.description", Digest::of(identity).hex())) })
    }

    /// Returns `None` if there is no usable file.
    pub fn read(&self) -> Option<DescribeResponse> {
        let bytes = std::fs::read(&self.file).ok()?;
        DescribeResponse::decode(bytes.as_slice()).ok().filter(|description| description.records.is_some())
    }

    /// Writes the lasting part of a description. A failure costs the next manager a call.
    pub fn write(&self, description: &DescribeResponse) {
        let lasting = DescribeResponse { running_operations: 0, requests: Vec::new(), ..description.clone() };
        if let Err(error) = self.replace(&lasting.encode_to_vec()) {
            tracing::warn!(%error, file = %self.file.display(), "cannot store the description of a package tool");
        }
    }

    fn replace(&self, content: &[u8]) -> std::io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.persist(&self.file)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::tool::ReleaseRecords;

    #[test]
    fn a_description_belongs_to_one_binary() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("tool");
        std::fs::write(&binary, "one").unwrap();
        let cache = |binary: &Path| DescriptionCache::new(&folder.path().join("cache"), binary);
        let described = DescribeResponse {
            name: "tool".to_owned(),
            running_operations: 3,
            records: Some(ReleaseRecords::default()),
            ..DescribeResponse::default()
        };
        cache(&binary).unwrap().write(&described);
        let lasting = DescribeResponse { running_operations: 0, ..described };
        assert_eq!(cache(&binary).unwrap().read(), Some(lasting));
        std::fs::write(&binary, "another").unwrap();
        assert_eq!(cache(&binary).unwrap().read(), None);
        assert!(cache(&folder.path().join("none")).is_none());
    }
}
