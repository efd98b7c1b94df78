//! Parameters held against the schema that a package brings along, before anything is sent to a cluster.

use std::{collections::HashMap, sync::Arc};

use chandler_api::extensions::PackageSource;
use chandler_core::{
    digest::Digest,
    failure::Failure,
    parameters::{Parameters, Rendered, Schema, merge, summarize},
    release::PackageReference,
};
use chandler_source::{PackageValues, Packages};

use crate::{
    release::NamedCatalogs,
    sync::{Mutex, MutexGuard},
};

/// How many verdicts are remembered; a fleet has a few for each of its extensions.
const REMEMBERED: usize = 4096;

/// Looks into packages.
pub struct SchemaCheck {
    packages: Arc<Packages>,
    catalogs: NamedCatalogs,
    /// By the digest of package and parameters; None: they fit.
    verdicts: Mutex<HashMap<Digest, Option<String>>>,
}

impl SchemaCheck {
    pub fn new(packages: Arc<Packages>, catalogs: NamedCatalogs) -> Self {
        Self { packages, catalogs, verdicts: Mutex::default() }
    }

    /// Why parameters do not fit the schema in the package of a source that is named in namespace `own`. A package that
    /// cannot be had, or whose schema cannot be used, is no reason: whoever installs it sees for themselves.
    pub async fn validate(
        &self,
        own: &str,
        source: &PackageSource,
        parameters: &Parameters,
        render: &Rendered,
    ) -> Option<String> {
        let key = key(own, source, &render.digest);
        if let Some(known) = self.lock().get(&key) {
            return known.clone();
        }
        let package = match self.values(own, source).await {
            Ok(package) => package,
            Err(failure) => {
                tracing::debug!(chart = source.chart, "the package's schema is not known: {failure}");
                return None;
            }
        };
        let verdict = validate(package, parameters);
        let mut verdicts = self.lock();
        if verdicts.len() >= REMEMBERED {
            verdicts.clear();
        }
        verdicts.insert(key, verdict.clone());
        verdict
    }

    async fn values(&self, own: &str, source: &PackageSource) -> Result<PackageValues, Failure> {
        let (repository, access) = self.catalogs.repository(own, source).await?;
        let (name, version) = (source.chart.clone(), source.version.clone());
        let reference = PackageReference { repository, name, version };
        let resolved = self.packages.resolve(&reference, &access).await?;
        Ok(self.packages.fetch(&resolved, &access).await?.values().await?)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Option<String>>> {
        self.verdicts.lock()
    }
}

fn key(own: &str, source: &PackageSource, parameters: &Digest) -> Digest {
    let source = serde_json::to_string(source).unwrap_or_default();
    Digest::of(format!("{own}\n{source}\n{parameters}"))
}

/// The schema is meant for the package's own values with the parameters laid over them.
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
    fn the_packages_own_values_count() {
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
