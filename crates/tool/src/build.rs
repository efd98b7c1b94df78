//! Builds the objects of a folder with manifests or a kustomization in the process of the template service.

use chandler_core::failure::{Category, Failure};

use crate::{
    TemplateService,
    client::{MESSAGE_LIMIT, local},
    generated::template::{self, BuildFailure, BuildRequest, SourceFile, build_response::Outcome},
    template::Client,
};

/// Largest total size of the files of a build. The rest of a message is for the paths.
const MAX_FILES_BYTES: usize = MESSAGE_LIMIT - (4 << 20);

/// The input of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInput {
    /// The files that the build may read, by path. A kustomization may refer to files outside its folder.
    pub files: Vec<(String, Vec<u8>)>,
    /// The folder to build. Empty means the root of the files.
    pub path: String,
    /// A JSON object. Empty means that there are no values.
    pub values: Vec<u8>,
}

/// An object that a build returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltObject {
    /// One YAML document.
    pub yaml: String,
    /// The file that it comes from, if known.
    pub file: Option<String>,
    /// Line of the file on which it starts, if known.
    pub line: Option<u32>,
}

impl TemplateService {
    /// Returns the objects of a folder. A failure names the file and the line, if they are known. The service reads nothing but
    /// the input.
    pub async fn build(&self, input: BuildInput) -> Result<Vec<BuiltObject>, Failure> {
        check_size(&input)?;
        let request = request(input);
        let send = |mut client: Client| {
            let request = local(request.clone());
            async move { client.build(request).await }
        };
        let answer = self.call(send).await?;
        match answer.outcome {
            Some(Outcome::Built(built)) => Ok(built.objects.into_iter().map(BuiltObject::from).collect()),
            Some(Outcome::Failure(failure)) => Err(build_failure(&failure)),
            None => Err(Failure::new(
                Category::Internal,
                "the template service breaks its contract: Build ended without an answer",
            )),
        }
    }
}

impl From<template::BuiltObject> for BuiltObject {
    fn from(object: template::BuiltObject) -> Self {
        let template::BuiltObject { yaml, file, line } = object;
        Self {
            yaml,
            file: Some(file).filter(|file| !file.is_empty()),
            line: Some(line).filter(|line| *line > 0),
        }
    }
}

fn check_size(input: &BuildInput) -> Result<(), Failure> {
    let bytes: usize = input.files.iter().map(|(_, content)| content.len()).sum();
    if bytes <= MAX_FILES_BYTES {
        return Ok(());
    }
    let message = format!(
        "the files to build have {} MiB, more than {} MiB: ignore those that the build does not read",
        bytes >> 20,
        MAX_FILES_BYTES >> 20
    );
    Err(Failure::new(Category::InvalidPackage, message))
}

fn request(input: BuildInput) -> BuildRequest {
    let BuildInput { files, path, values } = input;
    BuildRequest {
        files: files.into_iter().map(|(path, content)| SourceFile { path, content }).collect(),
        path,
        values,
        timeout: None,
        max_output_bytes: 0,
    }
}

fn build_failure(failure: &BuildFailure) -> Failure {
    let BuildFailure { message, file, line } = failure;
    let message = match (file.as_str(), *line) {
        ("", _) => message.clone(),
        (file, 0) => format!("{file}: {message}"),
        (file, line) => format!("{file}, line {line}: {message}"),
    };
    Failure::new(Category::InvalidPackage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_file_and_the_line() {
        let rows = [
            ("", 0, "no objects"),
            ("a.yaml", 0, "a.yaml: no objects"),
            ("apps/a.yaml", 7, "apps/a.yaml, line 7: no objects"),
        ];
        for (file, line, expected) in rows {
            let failure = BuildFailure { message: "no objects".to_owned(), file: file.to_owned(), line };
            let reported = build_failure(&failure);
            assert_eq!((reported.category, reported.message.as_str()), (Category::InvalidPackage, expected));
        }
    }

    #[test]
    fn an_unknown_place_is_none() {
        let object = |file: &str, line| {
            let yaml = "kind: ConfigMap\n".to_owned();
            BuiltObject::from(template::BuiltObject { yaml, file: file.to_owned(), line })
        };
        let place = |object: BuiltObject| (object.file, object.line);
        assert_eq!(place(object("", 0)), (None, None));
        assert_eq!(place(object("a.yaml", 3)), (Some("a.yaml".to_owned()), Some(3)));
    }

    #[test]
    fn files_that_do_not_fit_into_a_message_are_refused_before_the_call() {
        let input = |bytes| BuildInput {
            files: vec![("a.yaml".to_owned(), vec![b'x'; bytes]), ("b.yaml".to_owned(), vec![b'x'])],
            ..BuildInput::default()
        };
        check_size(&input(10)).unwrap();
        let failure = check_size(&input(MAX_FILES_BYTES)).unwrap_err();
        assert!(failure.message.contains("more than 60 MiB"), "{failure}");
    }
}
