//! Generates the reference of the kinds as Markdown from their CRDs.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

const HEADER: &str = "# Kinds\n\nFields that are not set have the default value. `[]` stands for each item of a list, `*` \
                      for each key of a map. The API server validates each *Rule* when an object is created and when \
                      the field changes.\n";

/// Returns a table of fields per kind.
pub fn markdown(crds: &[CustomResourceDefinition]) -> Result<String> {
    let mut text = HEADER.to_owned();
    for crd in crds {
        write_kind(&mut text, crd)?;
    }
    Ok(text)
}

fn write_kind(text: &mut String, crd: &CustomResourceDefinition) -> Result<()> {
    let names = &crd.spec.names;
    let short_names = names.short_names.iter().flatten().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    for version in &crd.spec.versions {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.with_context(|| format!("{} has no schema", names.kind))?;
        writeln!(text, "\n## {}\n", names.kind)?;
        writeln!(text, "{}\n", schema.description.as_deref().unwrap_or_default())?;
        writeln!(
            text,
            "`{}/{}`, {}, short name {}\n",
            crd.spec.group,
            version.name,
            crd.spec.scope.to_lowercase(),
            short_names.join(", ")
        )?;
        writeln!(text, "| Field | Type | Default | Description |\n|---|---|---|---|")?;
        write_fields(text, "", schema)?;
    }
    Ok(())
}

/// Writes the rows of all fields below `path`.
fn write_fields(text: &mut String, path: &str, schema: &JSONSchemaProps) -> Result<()> {
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        writeln!(
            text,
            "| `{path}` | {}{} | {} | {} |",
            type_of(field),
            if required.contains(name) { ", required" } else { "" },
            field.default.as_ref().map(|default| format!("`{}`", default.0)).unwrap_or_default(),
            cell(field, &field_rules(schema, name)),
        )?;
        write_fields(text, &path, field)?;
        match (&field.items, &field.additional_properties) {
            (Some(JSONSchemaPropsOrArray::Schema(items)), _) => {
                write_fields(text, &format!("{path}[]"), items)?;
            }
            (_, Some(JSONSchemaPropsOrBool::Schema(values))) => {
                write_fields(text, &format!("{path}.*"), values)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn type_of(schema: &JSONSchemaProps) -> String {
    if let Some(values) = &schema.enum_ {
        return values.iter().map(|value| format!("`{}`", value.0)).collect::<Vec<_>>().join(", ");
    }
    match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}", type_of(items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => format!("map of {}", type_of(values)),
        _ => schema.type_.clone().unwrap_or_default(),
    }
}

/// Returns the messages of the parent's validation rules for a field.
fn field_rules(parent: &JSONSchemaProps, name: &str) -> Vec<String> {
    let rules = parent.x_kubernetes_validations.iter().flatten();
    let matching = rules.filter(|rule| rule.field_path.as_deref() == Some(&format!(".{name}")));
    matching.filter_map(|rule| rule.message.clone()).collect()
}

fn cell(schema: &JSONSchemaProps, parent_rules: &[String]) -> String {
    let own = schema.x_kubernetes_validations.iter().flatten().filter(|rule| rule.field_path.is_none());
    let rules = own
        .filter_map(|rule| rule.message.as_ref())
        .chain(parent_rules)
        .map(|message| format!(" *Rule*: {message}."));
    let text = schema.description.clone().unwrap_or_default() + &rules.collect::<String>();
    let escapes = BTreeMap::from([('|', "\\|"), ('\n', " "), ('<', "&lt;")]);
    text.chars().fold(String::new(), |mut cell, character| {
        match escapes.get(&character) {
            Some(escape) => cell.push_str(escape),
            None => cell.push(character),
        }
        cell
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of fields below a schema.
    fn count(schema: &JSONSchemaProps) -> usize {
        let properties = schema.properties.iter().flatten().map(|(_, field)| 1 + count(field)).sum::<usize>();
        let items = match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => count(items),
            _ => 0,
        };
        let values = match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => count(values),
            _ => 0,
        };
        properties + items + values
    }

    #[test]
    fn every_field_has_a_row() {
        let text = markdown(&chandler_api::crds()).unwrap();
        for row in [
            "| `spec.options.timeout` | string | `\"10m\"` |",
            "| `spec.options.upgrade.maxHistory` | integer | `10` |",
            "| `spec.clusterSelector.matchLabels` | map of string |",
            "| `spec.clusterSelector` | object, required |",
            "| `status.conditions[].reason` | string, required |",
        ] {
            assert!(text.contains(row), "{row}");
        }
        let crds = chandler_api::crds();
        let schemas = crds.iter().map(|crd| crd.spec.versions[0].schema.clone().unwrap());
        let fields: usize = schemas.map(|schema| count(&schema.open_api_v3_schema.unwrap())).sum();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), fields);
        let undocumented: Vec<_> = rows.into_iter().filter(|row| row.ends_with("|  |")).collect();
        assert_eq!(undocumented, [] as [&str; 0], "fields without a description");
    }
}
