//! Estimates the cost of a schema validation before it runs.
//!
//! With references, a small schema can require exponential time: two references in each of forty definitions are 2^40
//! steps. The estimate visits each pair of a subschema and a value once, however many references lead to it.

use std::collections::HashMap;

use serde_json::Value;

/// Number of values in the schema document.
const MAX_SCHEMA_SIZE: usize = 200_000;
/// Nesting of the schema document, and length of chains of references.
const MAX_DEPTH: usize = 128;
/// A step takes about a microsecond in the worst case.
const MAX_STEPS: u64 = 1_000_000;

const TOO_LARGE: &str = "it is too large";
const TOO_DEEP: &str = "it is nested too deeply";
const TOO_MANY_STEPS: &str = "its parts refer to each other too often";

/// Keywords with one subschema or a list of them that apply to the same value.
const SAME_VALUE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "extends"];
/// Keywords with a map of subschemas that apply to the same value.
const SAME_VALUE_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords with one subschema or a list of them that apply to the members of an object or array.
const INNER_VALUES: [&str; 8] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];
/// Keywords with a map of subschemas that apply to the members of an object.
const INNER_VALUES_BY_NAME: [&str; 1] = ["patternProperties"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Rejects a schema that is too large or too deep to compile.
pub(super) fn check_schema(schema: &Value) -> Result<(), &'static str> {
    fn count(value: &Value, depth: usize, parts: &mut usize) -> Result<(), &'static str> {
        *parts += 1;
        if *parts > MAX_SCHEMA_SIZE {
            return Err(TOO_LARGE);
        }
        if depth > MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        children(value).try_for_each(|child| count(child, depth + 1, parts))
    }
    count(schema, 0, &mut 0)
}

/// Returns an error if the validation of `parameters` would take too long.
pub(super) fn check(schema: &Value, parameters: &Value) -> Result<(), &'static str> {
    let mut walk = Walk { root: schema, anchors: HashMap::new(), known: HashMap::new() };
    walk.find_anchors(schema);
    let steps = walk.steps(schema, parameters, 0)?;
    if steps > MAX_STEPS { Err(TOO_MANY_STEPS) } else { Ok(()) }
}

struct Walk<'a> {
    root: &'a Value,
    /// Subschemas that can be referenced by name.
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Steps per subschema and value, both identified by address.
    known: HashMap<(usize, usize), u64>,
}

impl<'a> Walk<'a> {
    fn find_anchors(&mut self, schema: &'a Value) {
        for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
            if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
                self.anchors.entry(name.trim_start_matches('#')).or_default().push(schema);
            }
        }
        for child in children(schema) {
            self.find_anchors(child);
        }
    }

    fn steps(&mut self, schema: &'a Value, value: &'a Value, depth: usize) -> Result<u64, &'static str> {
        let Some(keywords) = schema.as_object() else { return Ok(1) };
        let key = (std::ptr::from_ref(schema).addr(), std::ptr::from_ref(value).addr());
        if let Some(steps) = self.known.get(&key) {
            return Ok(*steps);
        }
        if depth > 2 * MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        if self.known.len() as u64 > MAX_STEPS {
            return Err(TOO_MANY_STEPS);
        }
        // Ends the recursion of a schema that refers to itself for the same value.
        self.known.insert(key, 1);
        let mut steps = 1_u64;
        for (keyword, part) in keywords {
            steps = steps.saturating_add(self.steps_of(keyword, part, value, depth + 1)?);
        }
        self.known.insert(key, steps);
        Ok(steps)
    }

    fn steps_of(
        &mut self,
        keyword: &str,
        part: &'a Value,
        value: &'a Value,
        depth: usize,
    ) -> Result<u64, &'static str> {
        let mut applied: Vec<(&'a Value, &'a Value)> = Vec::new();
        if keyword == "properties" {
            let named = part.as_object().into_iter().flatten();
            applied.extend(named.filter_map(|(name, schema)| Some((schema, value.get(name)?))));
        } else if SAME_VALUE.contains(&keyword) {
            applied.extend(one_or_all(part).map(|schema| (schema, value)));
        } else if SAME_VALUE_BY_NAME.contains(&keyword) {
            applied.extend(children(part).map(|schema| (schema, value)));
        } else if INNER_VALUES.contains(&keyword) {
            applied.extend(
                one_or_all(part).flat_map(|schema| children(value).map(move |inner| (schema, inner))),
            );
        } else if INNER_VALUES_BY_NAME.contains(&keyword) {
            applied
                .extend(children(part).flat_map(|schema| children(value).map(move |inner| (schema, inner))));
        } else if REFERENCES.contains(&keyword) {
            applied.extend(self.referred(part).into_iter().map(|schema| (schema, value)));
        }
        applied.into_iter().try_fold(1_u64, |steps, (schema, value)| {
            Ok(steps.saturating_add(self.steps(schema, value, depth)?))
        })
    }

    /// Returns all subschemas that a reference may resolve to.
    fn referred(&self, reference: &Value) -> Vec<&'a Value> {
        let Some(reference) = reference.as_str() else { return Vec::new() };
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let documents = match self.anchors.get(document) {
            Some(documents) if !document.is_empty() => documents.clone(),
            _ => vec![self.root],
        };
        if fragment.is_empty() {
            return documents;
        }
        let at_path = documents.iter().filter_map(|document| document.pointer(&percent_decoded(fragment)));
        at_path.chain(self.anchors.get(fragment).into_iter().flatten().copied()).collect()
    }
}

fn one_or_all(part: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    if part.is_array() { children(part) } else { Box::new(std::iter::once(part)) }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn percent_decoded(fragment: &str) -> String {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => bytes.extend_from_slice(format!("%{part}").as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
