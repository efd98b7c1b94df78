//! The package format: one document with a name, a version and manifests.

use chandler_core::digest::Digest;
use chandler_tool::generated::tool::{self as proto, PackageInfo};
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    failure::{Category, Failure},
    values,
};

/// The OCI artifact type of the packages.
pub const FORMAT: &str = "application/vnd.chandler.test.manifests.v1+yaml";

/// A package.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub app_version: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    default_values: Map<String, Value>,
    /// YAML of one object each, with the placeholders `$(release)` and `$(values)`.
    manifests: Vec<String>,
}

impl Package {
    /// Reads a package from the disk.
    pub fn read(file: Option<proto::Package>) -> Result<Self, Failure> {
        let invalid = |message: String| Failure::new(Category::InvalidPackage, message);
        let file = file.ok_or_else(|| invalid("the request has no package".to_owned()))?;
        let content = std::fs::read(&file.path)
            .map_err(|error| invalid(format!("the package cannot be read: {}", error.kind())))?;
        let digest = Digest::of(&content).to_string();
        if digest != file.digest {
            return Err(invalid(format!("the package's content is {digest}, requested was {}", file.digest)));
        }
        let package: Self = serde_saphyr::from_slice(&content).map_err(|_| {
            invalid("the package is not a document with name, version and manifests".to_owned())
        })?;
        if package.name.is_empty() || package.version.is_empty() {
            return Err(invalid("the package has no name or no version".to_owned()));
        }
        Ok(package)
    }

    pub fn info(self) -> PackageInfo {
        PackageInfo {
            default_values: Value::Object(self.default_values).to_string(),
            name: self.name,
            version: self.version,
            app_version: self.app_version,
            description: self.description,
            ..PackageInfo::default()
        }
    }

    /// Returns the objects for a release with the given values.
    pub fn render(&self, release: &str, given: &Map<String, Value>) -> Result<Vec<DynamicObject>, Failure> {
        let values = values::canonical(values::merge(self.default_values.clone(), given.clone()));
        // The values are a quoted string, and are inserted last: they are not searched for placeholders.
        let values = Value::String(values).to_string();
        let render = |(index, manifest): (usize, &String)| {
            let text = manifest.replace("$(release)", release).replace("$(values)", &values);
            // The parser's message may contain values.
            serde_saphyr::from_str(&text).map_err(|_| {
                let message = format!("manifest {} of the package is not an object", index + 1);
                Failure::new(Category::InvalidPackage, message)
            })
        };
        self.manifests.iter().enumerate().map(render).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let package = Package {
            name: "notice".to_owned(),
            version: "1.0.0".to_owned(),
            app_version: String::new(),
            description: String::new(),
            default_values: values::object(br#"{"size": 1, "text": "none"}"#).unwrap(),
            manifests: vec![
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: $(release)}\ndata: {values: $(values)}\n"
                    .to_owned(),
            ],
        };
        let given = values::object(br#"{"text": "\"$(release)\""}"#).unwrap();
        let objects = package.render("web", &given).unwrap();
        assert_eq!(objects[0].metadata.name.as_deref(), Some("web"));
        assert_eq!(objects[0].data["data"]["values"], r#"{"size":1,"text":"\"$(release)\""}"#);
    }
}
