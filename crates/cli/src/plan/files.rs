//! Reads the objects of files.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use crate::yaml_documents::{has_content, split};

/// Standard input.
const STDIN: &str = "-";
/// The files of a folder that are read, as by kubectl.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Returns the objects of files and folders.
pub fn read(names: &[PathBuf], recursive: bool) -> Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for name in names {
        if name.as_os_str() == STDIN {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
            objects.extend(parse(&text).context("standard input")?);
            continue;
        }
        for file in files(name, recursive)? {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            objects.extend(parse(&text).with_context(|| file.display().to_string())?);
        }
    }
    Ok(objects)
}

/// Returns a file, or the files of a folder, sorted by name.
fn files(name: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    if !name.is_dir() {
        return Ok(vec![name.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = fs::read_dir(name).with_context(|| format!("reading {}", name.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", name.display()))?.path();
        let is_read =
            path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|one| extension == *one));
        if path.is_dir() {
            if recursive {
                found.extend(files(&path, recursive)?);
            }
        } else if is_read {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the objects of YAML documents. Lists are expanded. An error does not quote the text, which may be confidential.
fn parse(text: &str) -> Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for (line, document) in split(text.trim_start_matches('\u{feff}')) {
        if !has_content(&document) {
            continue;
        }
        let at_line = || format!("the document at line {line}");
        let Ok(value) = serde_saphyr::from_str::<Value>(&document) else {
            bail!("{} is not valid YAML", at_line())
        };
        objects.extend(items(value).with_context(at_line)?);
    }
    Ok(objects)
}

/// Returns an object, or the objects of a list.
fn items(mut value: Value) -> Result<Vec<DynamicObject>> {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    let values = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        _ => vec![value],
    };
    values.into_iter().map(object).collect()
}

fn object(value: Value) -> Result<DynamicObject> {
    let Ok(object) = serde_json::from_value::<DynamicObject>(value) else { bail!("it is not an object") };
    ensure!(object.types.is_some(), "it has no apiVersion or no kind");
    ensure!(object.metadata.name.is_some(), "it has no metadata.name");
    Ok(object)
}

/// Sets the namespace of objects that name none. An object of another namespace than the `given` one is an error, as it is for
/// kubectl.
pub fn with_namespace(
    mut objects: Vec<DynamicObject>,
    given: Option<&str>,
    default: &str,
) -> Result<Vec<DynamicObject>> {
    for object in &mut objects {
        match (object.namespace(), given) {
            (Some(own), Some(given)) if own != given => {
                bail!("{} is in namespace {own}, but --namespace is {given}", object.name_any())
            }
            (Some(_), _) => {}
            (None, given) => object.metadata.namespace = Some(given.unwrap_or(default).to_owned()),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hello}\n";

    fn names(objects: &[DynamicObject]) -> Vec<String> {
        objects.iter().map(kube::ResourceExt::name_any).collect()
    }

    #[test]
    fn documents_and_lists_are_read() {
        let list =
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n";
        let objects = parse(&format!("\u{feff}{HELLO}---\n# nothing\n---\n{list}")).unwrap();
        assert_eq!(names(&objects), ["hello", "a"]);
        let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "json"}}"#;
        assert_eq!(names(&parse(json).unwrap()), ["json"]);
    }

    #[test]
    fn an_error_names_the_line_and_does_not_quote_the_text() {
        let rows = [
            (format!("{HELLO}---\npassword: [canary"), "line 5", "not valid YAML"),
            ("kind: Canary".to_owned(), "line 1", "it has no apiVersion or no kind"),
            ("apiVersion: v1\nkind: Canary\nmetadata: {}".to_owned(), "line 1", "no metadata.name"),
            ("canary".to_owned(), "line 1", "it is not an object"),
        ];
        for (text, line, why) in rows {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(line) && error.contains(why), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn folders_are_read_recursively_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(folder.path().join("b.yaml"), HELLO).unwrap();
        fs::write(folder.path().join("a.json"), "{}").unwrap();
        fs::write(folder.path().join("README.md"), "no object").unwrap();
        fs::write(below.join("c.yml"), HELLO).unwrap();
        let found = |recursive| {
            let found = files(folder.path(), recursive).unwrap();
            found
                .iter()
                .map(|file| file.strip_prefix(folder.path()).unwrap().display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(found(false), ["a.json", "b.yaml"]);
        assert_eq!(found(true), ["a.json", "b.yaml", "below/c.yml"]);
        assert!(read(&[folder.path().join("none.yaml")], false).is_err());
    }

    #[test]
    fn objects_without_a_namespace_get_one_and_others_must_match() {
        let namespace = |text: &str, given: Option<&str>| {
            let objects = with_namespace(parse(text).unwrap(), given, "default")?;
            Ok::<_, anyhow::Error>(objects[0].namespace().unwrap())
        };
        let named = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hello, namespace: fleet}\n";
        assert_eq!(namespace(HELLO, None).unwrap(), "default");
        assert_eq!(namespace(HELLO, Some("team")).unwrap(), "team");
        assert_eq!(namespace(named, None).unwrap(), "fleet");
        assert_eq!(namespace(named, Some("fleet")).unwrap(), "fleet");
        assert!(namespace(named, Some("team")).is_err());
    }
}
