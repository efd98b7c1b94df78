//! Turns the files of a folder into objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use chandler_core::{
    failure::{Category, Failure},
    source::{Content, content_of, is_manifest},
    sync::{BuiltDocument, Document, check_files, read_objects},
};
use chandler_source::SourceTree;
use chandler_tool::{BuildInput, BuiltObject, TemplateService};
use futures::{FutureExt as _, future::BoxFuture};

/// Turns the files of a folder into objects. It gets no credentials and makes no requests.
pub trait Render: Send + Sync {
    /// Returns the objects of a folder of a Source, or a failure that names file and line. A part of the objects is never
    /// returned.
    fn render<'a>(
        &'a self,
        tree: &'a SourceTree,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Document>, Failure>>;
}

impl Render for TemplateService {
    fn render<'a>(
        &'a self,
        tree: &'a SourceTree,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Document>, Failure>> {
        async move {
            let files = folder_files(tree, path)?;
            check_files(&files)?;
            let built = self.build(input(tree, files, path)?).await?;
            // Large objects would block other tasks.
            let read = move || read_objects(built.into_iter().map(document));
            let read = tokio::task::spawn_blocking(read).await;
            read.unwrap_or_else(|error| Err(Failure::new(Category::Internal, error.to_string())))
        }
        .boxed()
    }
}

/// Returns the files of a folder of a Source, with paths relative to it.
pub fn folder_files(tree: &SourceTree, path: &str) -> Result<BTreeMap<String, Bytes>, Failure> {
    let folder = tree.below(path).map_err(|_| {
        let message = format!(
            "the Source has no folder {path:?}; nothing is changed; restore it, or correct spec.source.path"
        );
        Failure::new(Category::InvalidPackage, message)
    })?;
    Ok(folder.files)
}

/// Returns what a build may read: a kustomization may refer to files outside of its folder.
fn input(tree: &SourceTree, files: BTreeMap<String, Bytes>, path: &str) -> Result<BuildInput, Failure> {
    let content = content_of(files.keys().map(String::as_str))?;
    let (files, path) = match content {
        Content::Kustomization => (tree.files.clone(), path.to_owned()),
        Content::Chart | Content::Manifests => {
            (files.into_iter().filter(|(file, _)| is_manifest(file)).collect(), String::new())
        }
    };
    let files = files.into_iter().map(|(file, content)| (file, content.to_vec())).collect();
    Ok(BuildInput { files, path, values: Vec::new() })
}

fn document(object: BuiltObject) -> BuiltDocument {
    let BuiltObject { yaml, file, line } = object;
    let line = line.and_then(|line| usize::try_from(line).ok()).unwrap_or(1);
    BuiltDocument { file: file.unwrap_or_default(), line, yaml }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_or_renamed_folder_is_a_failure() {
        let files = [("fleet/a.yaml", "1"), ("fleet-old/b.yaml", "2")];
        let files = files.map(|(path, text)| (path.to_owned(), Bytes::from_static(text.as_bytes())));
        let tree = SourceTree { revision: "r1".to_owned(), files: files.into() };
        let found = folder_files(&tree, "./fleet/").unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["a.yaml"]);
        for path in ["missing", "fle", "fleet/a.yaml", "../fleet"] {
            let failure = folder_files(&tree, path).unwrap_err();
            assert_eq!(failure.category, Category::InvalidPackage, "{path}");
            assert!(failure.message.contains("nothing is changed"), "{path}: {failure}");
        }
    }
}
