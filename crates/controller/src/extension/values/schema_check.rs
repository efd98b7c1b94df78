//! Validates parameters against the schema of a package before the release object is written.

use std::{collections::HashMap, sync::Arc};

use chandler_core::{
    digest::Digest,
    failure::Failure,
    parameters::{Parameters, Rendered, Schema, merge, summarize},
    release::{PackageReference, SourceFolder},
};
use chandler_source::{PackageValues, Packages};

use super::Layers;
use crate::{
    locks::{Mutex, MutexGuard},
    queue::outside_of_limit,
    release::{NamedCatalogs, named_catalog},
    sources::SourcePackages,
};

/// Number of cached results. A fleet needs a few per extension.
const MAX_CACHED: usize = 4096;

/// Validates parameters against the schemas of packages.
pub struct SchemaCheck {
    packages: Arc<Packages>,
    catalogs: NamedCatalogs,
    source_packages: SourcePackages,
    /// Results by the digest of package and parameters. `None` means that the parameters are valid.
    results: Mutex<HashMap<Digest, Option<String>>>,
}

impl SchemaCheck {
    pub fn new(packages: Arc<Packages>, catalogs: NamedCatalogs, source_packages: SourcePackages) -> Self {
        Self { packages, catalogs, source_packages, results: Mutex::default() }
    }

    /// Returns why parameters violate the schema of a package, or `None` if they do not. `own` is the namespace of the
    /// instance.
    ///
    /// Also returns `None` if the package is unavailable or its schema is invalid: the operation will report that.
    pub async fn validate(
        &self,
        own: &str,
        layers: &Layers,
        parameters: &Parameters,
        rendered: &Rendered,
    ) -> Option<String> {
        let key = key(own, layers, &rendered.digest);
        if let Some(known) = self.lock().get(&key) {
            return known.clone();
        }
        let package = match self.values(own, layers).await {
            Ok(package) => package,
            Err(failure) => {
                tracing::debug!(
                    chart = layers.source.chart,
                    "the schema of the package is unavailable: {failure}"
                );
                return None;
            }
        };
        let result = validate(package, parameters);
        let mut results = self.lock();
        if results.len() >= MAX_CACHED {
            results.clear();
        }
        results.insert(key, result.clone());
        result
    }

    async fn values(&self, own: &str, layers: &Layers) -> Result<PackageValues, Failure> {
        let source = &layers.source;
        self.catalogs.check_allowed(own, source).await?;
        if let Some(reference) = &source.source_ref {
            let Some(pinned) = layers.pinned.clone().filter(|pinned| pinned.format.is_none()) else {
                return Ok(PackageValues::default());
            };
            let (tag, path) = (source.version.clone(), source.path.clone().unwrap_or_default());
            let folder = SourceFolder { source: reference.clone(), tag, path, pinned, values: None };
            return Ok(self.source_packages.stored(&folder, own).await?.values().await?);
        }
        let (repository, access) = self.catalogs.repository(own, source).await?;
        let (name, version) = (source.chart.clone(), source.version.clone());
        let reference = PackageReference { repository, name, version };
        let catalog = named_catalog(source);
        let resolved = self.catalogs.resolve(&self.packages, own, catalog, &reference, &access).await?;
        if !resolved.format.is_helm_chart() {
            // Only charts have a schema that Chandler reads; other packages are opened by their tool alone.
            return Ok(PackageValues::default());
        }
        self.catalogs.check_archive(own, catalog, &resolved).await?;
        Ok(outside_of_limit(self.packages.fetch(&resolved, &access)).await?.values().await?)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Option<String>>> {
        self.results.lock()
    }
}

fn key(own: &str, layers: &Layers, parameters: &Digest) -> Digest {
    let package = serde_json::to_string(&(&layers.source, &layers.pinned)).unwrap_or_default();
    Digest::of(format!("{own}\n{package}\n{parameters}"))
}

/// Validates the parameters merged over the package's own values, as Helm does.
fn validate(package: PackageValues, parameters: &Parameters) -> Option<String> {
    let schema = Schema::new(&package.schema?).ok()?;
    let violations = schema.violations(&merge([package.defaults, parameters.clone()])).ok()?;
    summarize(&violations).map(|failure| failure.message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(value: Value) -> Parameters {
        serde_json::from_value(value).unwrap()
    }

    fn package(schema: Option<Value>) -> PackageValues {
        PackageValues { schema, defaults: map(json!({"image": "hello"})) }
    }

    #[test]
    fn the_packages_own_values_are_validated_too() {
        let schema = json!({"required": ["image"], "properties": {"size": {"maximum": 7}}});
        let rows = [
            (Some(schema.clone()), json!({}), None),
            (Some(schema.clone()), json!({"size": 3}), None),
            (Some(schema.clone()), json!({"size": 9}), Some("size")),
            (Some(schema), json!({"image": null}), Some("image")),
            (Some(json!({"$ref": "https://elsewhere.example/schema"})), json!({"size": 9}), None),
            (None, json!({"size": 9}), None),
        ];
        for (schema, parameters, hint) in rows {
            let found = validate(package(schema), &map(parameters.clone()));
            assert_eq!(found.is_some(), hint.is_some(), "{parameters}: {found:?}");
            assert!(found.unwrap_or_default().contains(hint.unwrap_or_default()), "{parameters}");
        }
    }
}
