//! The default values of a package and their schema.

use std::{
    fs::File,
    io::{BufReader, Read},
};

use chandler_core::{
    failure::Failure,
    parameters::{Parameters, from_package_yaml},
};
use serde_json::Value;

use crate::{
    SourceError, StoredPackage,
    archive::{self, ArchiveError, EntryKind, Totals},
};

const SCHEMA: &str = "values.schema.json";
const DEFAULTS: &str = "values.yaml";
/// Helm ignores it at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Real files have at most a few hundred kilobytes.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// The values of a package are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValuesError {
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] std::io::Error),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{SCHEMA}: {0}")]
    Schema(serde_json::Error),
    #[error("{DEFAULTS} is not UTF-8 text")]
    NotUtf8,
    #[error("{0}")]
    Defaults(Failure),
    #[error("{file} is larger than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge { file: &'static str },
}

/// The values of a package.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackageValues {
    /// JSON schema of the values, if the package has one.
    pub schema: Option<Value>,
    /// The default values. As in Helm, the schema applies to these merged with the values of the release.
    pub defaults: Parameters,
}

impl StoredPackage {
    /// Reads the values of a chart from its archive, which was validated when it was stored. Packages of other formats were
    /// not: they are never opened here and have no values.
    pub async fn values(&self) -> Result<PackageValues, SourceError> {
        if !self.format.is_helm_chart() {
            return Ok(PackageValues::default());
        }
        let path = self.path().to_owned();
        let read = move || {
            let file = File::open(path).map_err(|error| SourceError::Store(error.to_string()))?;
            let size = file.metadata().map_err(|error| SourceError::Store(error.to_string()))?.len();
            values(BufReader::new(file), size).map_err(|error| SourceError::InvalidValues(error.to_string()))
        };
        tokio::task::spawn_blocking(read).await.map_err(|error| SourceError::Store(error.to_string()))?
    }
}

/// Reads the values in an archive of `packed` bytes.
fn values(archive: impl Read, packed: u64) -> Result<PackageValues, ValuesError> {
    let mut values = PackageValues::default();
    let (mut archive, mut totals) = (archive::unpacked(archive), Totals::new(packed));
    while let Some(entry) = archive.next_entry(&mut totals)? {
        if entry.kind != EntryKind::File {
            continue;
        }
        match entry.path_in_chart().as_str() {
            SCHEMA => {
                let text = read_file(&mut archive, SCHEMA)?;
                let schema = serde_json::from_slice(&text).map_err(ValuesError::Schema)?;
                values.schema = Some(schema);
            }
            DEFAULTS => {
                let text = read_file(&mut archive, DEFAULTS)?;
                let text = String::from_utf8(text).map_err(|_| ValuesError::NotUtf8)?;
                values.defaults = from_package_yaml(DEFAULTS, &text).map_err(ValuesError::Defaults)?;
            }
            _ => {}
        }
    }
    Ok(values)
}

fn read_file(file: &mut impl Read, name: &'static str) -> Result<Vec<u8>, ValuesError> {
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(ValuesError::TooLarge { file: name });
    }
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use chandler_core::{digest::Digest, package_format::PackageFormat};
    use serde_json::json;
    use tar::EntryType::Regular;

    use super::*;
    use crate::{Store, archive::testing::pack, store::Claim};

    async fn values_of(files: &[(&str, &[u8])]) -> Result<PackageValues, SourceError> {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let entries: Vec<_> = files.iter().map(|(name, content)| (*name, Regular, *content)).collect();
        let mut writer = store.create(Claim::new("team", "https://charts.example", None)).unwrap();
        writer.write(&pack(&entries)).unwrap();
        let digest: Digest = writer.commit("url", None, &PackageFormat::default()).await.unwrap();
        store.get(&digest, &PackageFormat::default()).unwrap().values().await
    }

    #[tokio::test]
    async fn schema_and_defaults_are_read_from_the_chart_itself() {
        let chart: (&str, &[u8]) = ("web/Chart.yaml", b"name: web\n");
        let found = values_of(&[
            chart,
            ("web/charts/inner/values.schema.json", b"{\"title\": \"inner\"}"),
            ("web/values.schema.json", b"{\"title\": \"own\"}"),
            ("web/values.yaml", b"replicas: 2\n"),
            ("web/files/values.yaml", b"replicas: 3\n"),
        ])
        .await
        .unwrap();
        assert_eq!(found.schema, Some(json!({"title": "own"})));
        assert_eq!(Value::Object(found.defaults), json!({"replicas": 2}));
        assert_eq!(values_of(&[chart]).await.unwrap(), PackageValues::default());
        let found = values_of(&[
            ("web/files\\values.schema.json", b"\xef\xbb\xbf{\"title\": \"own\"}"),
            ("./values.yaml", b"\xef\xbb\xbfreplicas: 2\n"),
            ("./web/values.yaml", b"replicas: 3\n"),
            ("./values.yaml\\a", b"replicas: 4\n"),
        ])
        .await
        .unwrap();
        assert_eq!(found.schema, Some(json!({"title": "own"})));
        assert_eq!(Value::Object(found.defaults), json!({"replicas": 2}), "the folder of the chart is `.`");
    }

    #[tokio::test]
    async fn errors_contain_the_name_of_the_invalid_file() {
        let large = vec![b' '; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        let rows: [(&str, &[u8], &str); 5] = [
            ("web/values.schema.json", &large, "values.schema.json is larger than 2 MiB"),
            ("web/values.schema.json", b"{", "values.schema.json: EOF"),
            ("web/values.yaml", &large, "values.yaml is larger than 2 MiB"),
            ("web/values.yaml", b"- a", "values.yaml is not a map of parameters"),
            ("web/values.yaml", b"\xff\xff", "values.yaml is not UTF-8 text"),
        ];
        for (name, content, text) in rows {
            let error = values_of(&[(name, content)]).await.unwrap_err();
            assert!(matches!(error, SourceError::InvalidValues(_)), "{error}");
            assert!(error.to_string().contains(text), "{error} does not contain {text:?}");
        }
    }
}
