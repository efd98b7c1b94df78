//! The CycloneDX document.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::{Value, json};

use crate::sha256;

const SPEC_VERSION: &str = "1.6";

/// A part of a program or image.
#[derive(Clone, Debug)]
pub struct Component {
    kind: &'static str,
    name: String,
    version: String,
    /// Identifies the component within the document.
    reference: String,
    /// Identifies a published package.
    purl: Option<String>,
    /// An SPDX expression.
    license: Option<String>,
    sha256: Option<String>,
}

impl Component {
    pub fn new(kind: &'static str, name: &str, version: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            version: version.to_owned(),
            reference: format!("{name}@{version}"),
            purl: None,
            license: None,
            sha256: None,
        }
    }

    /// Sets the package URL, which is the reference too.
    pub fn with_purl(self, purl: String) -> Self {
        Self { reference: purl.clone(), purl: Some(purl), ..self }
    }

    pub fn with_reference(self, reference: String) -> Self {
        Self { reference, ..self }
    }

    pub fn with_license(self, license: &str) -> Self {
        Self { license: Some(license.to_owned()), ..self }
    }

    pub fn with_sha256(self, sha256: &str) -> Self {
        Self { sha256: Some(sha256.to_owned()), ..self }
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "type": self.kind,
            "bom-ref": self.reference,
            "name": self.name,
            "version": self.version,
        });
        if let Some(sha256) = &self.sha256 {
            json["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
        }
        if let Some(license) = &self.license {
            json["licenses"] = json!([{"expression": license}]);
        }
        if let Some(purl) = &self.purl {
            json["purl"] = json!(purl);
        }
        json
    }
}

/// The parts of a program or image, and what depends on what.
#[derive(Debug)]
pub struct Bom {
    subject: Component,
    components: BTreeMap<String, Component>,
    dependencies: BTreeMap<String, BTreeSet<String>>,
}

impl Bom {
    pub fn new(subject: Component) -> Self {
        let dependencies = BTreeMap::from([(subject.reference.clone(), BTreeSet::new())]);
        Self { subject, components: BTreeMap::new(), dependencies }
    }

    /// Returns the reference of the program or image.
    pub fn subject(&self) -> String {
        self.subject.reference.clone()
    }

    /// Adds a component, unless it is known, and returns its reference.
    pub fn add(&mut self, component: Component) -> String {
        let reference = component.reference.clone();
        self.dependencies.entry(reference.clone()).or_default();
        self.components.entry(reference.clone()).or_insert(component);
        reference
    }

    /// Adds the dependency of one component on another.
    pub fn depend(&mut self, from: &str, on: &str) {
        if from != on {
            self.dependencies.entry(from.to_owned()).or_default().insert(on.to_owned());
        }
    }

    /// Returns the document of a program with the digest of its file.
    pub fn with_file(self, sha256: &str) -> Self {
        Self { subject: self.subject.with_sha256(sha256), ..self }
    }

    /// Adds a program or file of this image, with all of its parts.
    pub fn contain(&mut self, part: Bom) {
        let Bom { subject, components, dependencies } = part;
        let (image, reference) = (self.subject(), self.add(subject));
        self.depend(&image, &reference);
        for component in components.into_values() {
            self.add(component);
        }
        for (from, all) in dependencies {
            for on in all {
                self.depend(&from, &on);
            }
        }
    }

    /// Returns the document. Its serial number is derived from its content, and it has no time, so that equal inputs give
    /// equal documents.
    pub fn json(&self) -> Result<String> {
        let dependencies = self.dependencies.iter();
        let dependencies = dependencies.map(|(reference, on)| json!({"ref": reference, "dependsOn": on}));
        let mut document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": SPEC_VERSION,
            "version": 1,
            "metadata": {
                "tools": {"components": [{"type": "application", "name": "cargo xtask sbom"}]},
                "component": self.subject.json(),
            },
            "components": self.components.values().map(Component::json).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        });
        document["serialNumber"] = json!(serial_number(&document.to_string()));
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}

/// Returns a UUID of version 8, which is that of values derived in one's own way.
fn serial_number(content: &str) -> String {
    let digest = sha256::digest(content.as_bytes());
    let part = |from: usize, to: usize| &digest[from..to];
    format!("urn:uuid:{}-{}-8{}-a{}-{}", part(0, 8), part(8, 12), part(12, 15), part(15, 18), part(18, 30))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    fn program(name: &str) -> Bom {
        let mut bom = Bom::new(Component::new("application", name, "1.0.0"));
        let subject = bom.subject();
        let library = Component::new("library", "shared", "2.0.0").with_purl("pkg:cargo/shared@2.0.0".into());
        let library = bom.add(library.with_license("MIT"));
        bom.depend(&subject, &library);
        bom
    }

    #[test]
    fn an_image_contains_the_parts_of_its_programs_once() {
        let mut image = Bom::new(Component::new("container", "image", "v1"));
        image.contain(program("a").with_file("00"));
        image.contain(program("b"));
        let text = image.json().unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let references = |list: &Value, field: &str| -> Vec<String> {
            list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            references(&document["components"], "bom-ref"),
            ["a@1.0.0", "b@1.0.0", "pkg:cargo/shared@2.0.0"]
        );
        assert_eq!(document["components"][0]["hashes"][0]["content"], "00");
        assert_eq!(document["components"][2]["licenses"][0]["expression"], "MIT");
        let dependencies = document["dependencies"].as_array().unwrap();
        let of = |reference: &str| {
            let found = dependencies.iter().find(|item| item["ref"] == reference).unwrap();
            found["dependsOn"].clone()
        };
        assert_eq!(of("image@v1"), json!(["a@1.0.0", "b@1.0.0"]));
        assert_eq!(of("a@1.0.0"), json!(["pkg:cargo/shared@2.0.0"]));
        let serial = document["serialNumber"].as_str().unwrap();
        assert_eq!(serial.len(), "urn:uuid:".len() + 36, "{serial}");
        assert_eq!(image.json().unwrap(), text);
        assert_ne!(
            serial,
            serde_json::from_str::<Value>(&program("a").json().unwrap()).unwrap()["serialNumber"]
        );
    }
}
