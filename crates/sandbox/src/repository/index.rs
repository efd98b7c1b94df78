//! Writes `index.yaml` from the packaged charts in its folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::Error;
use crate::{chart, digest};

/// Writes the index atomically: to a temporary file that replaces the old index.
pub(super) fn write(folder: &Path) -> Result<(), Error> {
    let index = render(folder)?;
    let text = serde_saphyr::to_string(&index).map_err(|source| Error::Index { source: Box::new(source) })?;
    let path = folder.join("index.yaml");
    let unfinished = folder.join("index.yaml.unfinished");
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, &path))
        .map_err(|source| Error::Folder { path, source })
}

fn render(folder: &Path) -> Result<Value, Error> {
    let failed = |source| Error::Folder { path: folder.to_owned(), source };
    let mut entries: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "tgz") {
            continue;
        }
        let bytes = fs::read(&path).map_err(failed)?;
        let mut chart = chart::metadata(&path, &bytes)?;
        chart["urls"] = json!([entry.file_name().to_string_lossy()]);
        chart["digest"] = json!(digest::of(&bytes));
        chart["created"] = json!(timestamp(entry.metadata().and_then(|metadata| metadata.modified()).ok()));
        let name = chart["name"].as_str().unwrap_or_default().to_owned();
        entries.entry(name).or_default().push(chart);
    }
    for versions in entries.values_mut() {
        versions.sort_by_key(|chart| std::cmp::Reverse(version(chart)));
    }
    Ok(json!({
        "apiVersion": "v1",
        "entries": entries,
        "generated": timestamp(Some(SystemTime::now())),
    }))
}

fn version(chart: &Value) -> Option<semver::Version> {
    semver::Version::parse(chart["version"].as_str()?.trim_start_matches('v')).ok()
}

fn timestamp(time: Option<SystemTime>) -> String {
    time.and_then(|time| jiff::Timestamp::try_from(time).ok())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Package;

    #[test]
    fn every_version_is_listed_newest_first_with_its_digest() {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.0.0\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut digests = Vec::new();
        for version in ["1.10.0", "1.9.0"] {
            let package = Package::pack(source.path(), Some(version)).unwrap();
            fs::write(folder.path().join(package.file_name()), &package.bytes).unwrap();
            digests.push(digest::of(&package.bytes));
        }
        write(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("index.yaml")).unwrap();
        let index: Value = serde_saphyr::from_str(&text).unwrap();
        let versions = &index["entries"]["web"];
        assert_eq!(versions[0]["version"], "1.10.0");
        assert_eq!(versions[1]["version"], "1.9.0");
        assert_eq!(versions[0]["digest"], json!(digests[0]));
        assert_eq!(versions[0]["urls"][0], "web-1.10.0.tgz");
    }
}
