use proptest::{collection, prelude::*};
use serde_json::json;

use super::*;
use crate::{
    digest::Digest,
    failure::{Category, Failure},
};

/// Must not appear in any message.
const CANARY: &str = "canary-4711";

fn map(value: Value) -> Parameters {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not a map"),
    }
}

#[test]
fn later_layers_take_precedence() {
    let rows = [
        (vec![], json!({})),
        (vec![json!({"a": 1})], json!({"a": 1})),
        (vec![json!({"a": 1}), json!({"b": 2})], json!({"a": 1, "b": 2})),
        (vec![json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 3}})], json!({"a": {"b": 1, "c": 3}})),
        (vec![json!({"a": [1, 2]}), json!({"a": [3]})], json!({"a": [3]})),
        (vec![json!({"a": {"b": 1}}), json!({"a": "text"})], json!({"a": "text"})),
        (vec![json!({"a": 1}), json!({"a": {"b": 1}})], json!({"a": {"b": 1}})),
        (vec![json!({"a": {"b": 1}}), json!({"a": null})], json!({"a": null})),
        (vec![json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": {"c": 2}})], json!({"a": {"c": 2}})),
        (vec![json!({"a": {"b": 1, "c": 1}}), json!({"a": {"b": null}})], json!({"a": {"b": null, "c": 1}})),
    ];
    for (layers, expected) in rows {
        let shown = format!("{layers:?}");
        assert_eq!(Value::Object(merge(layers.into_iter().map(map))), expected, "{shown}");
    }
}

#[test]
fn source_values_become_layers() {
    let text = |text: &str| SourceValue::Text(text.to_owned());
    let rows = [
        (text("a: 1\nb: {c: yes}"), None, json!({"a": 1, "b": {"c": true}})),
        (text("mode: 0644"), None, json!({"mode": 420})),
        (text(""), None, json!({})),
        (text("# nothing\n"), None, json!({})),
        (text("a: 1"), Some("b"), json!({"b": "a: 1"})),
        (text("12345"), Some("auth.password"), json!({"auth": {"password": "12345"}})),
        (text("x"), Some(r"annotations.example\.com/a"), json!({"annotations": {"example.com/a": "x"}})),
        (text("x"), Some(r"a\\.b"), json!({"a\\": {"b": "x"}})),
        (SourceValue::Value(json!(["k"])), Some("ssh.keys"), json!({"ssh": {"keys": ["k"]}})),
        (SourceValue::Value(json!({"a": 1})), None, json!({"a": 1})),
        (SourceValue::Value(json!("a: 1")), None, json!({"a": 1})),
    ];
    for (found, parameter, expected) in rows {
        let shown = format!("{found:?} {parameter:?}");
        assert_eq!(
            Value::Object(found.layer("it", "parametersFrom", parameter).unwrap()),
            expected,
            "{shown}"
        );
    }
}

#[test]
fn errors_name_the_source_and_not_the_value() {
    let text = |text: String| SourceValue::Text(text);
    let rows = [
        (text(CANARY.to_owned()), None, "is not a map of parameters"),
        (text(format!("- {CANARY}")), None, "is not a map of parameters"),
        (SourceValue::Value(json!([CANARY])), None, "(valuesFrom[].parameter)"),
        (text(format!("a: 1\nb: [{CANARY}")), None, "is not valid YAML (line"),
        (text(format!("{CANARY}: 1\n{CANARY}: 2")), None, "is not valid YAML (line 2, column 1)"),
        (text(format!("a: {{{CANARY}: .inf}}")), None, "is not valid YAML"),
        (text(format!("a: *{CANARY}")), None, "is not valid YAML"),
        (text(format!("a: 1\n---\nb: {CANARY}")), None, "is not valid YAML"),
        (text(CANARY.to_owned()), Some("a..b"), "parameter \"a..b\" contains an empty name"),
        (text(CANARY.to_owned()), Some("a."), "contains an empty name"),
    ];
    for (found, parameter, hint) in rows {
        let failure = found.layer("key k of Secret fleet/s", "valuesFrom", parameter).unwrap_err();
        assert!(failure.message.contains(hint), "{} does not contain {hint}", failure.message);
        assert!(!failure.message.contains(CANARY), "{}", failure.message);
        assert!(parameter.is_some() || failure.message.starts_with("key k of Secret fleet/s "), "{failure}");
    }
}

#[test]
fn a_package_may_have_duplicate_keys() {
    let read = from_package_yaml("values.yaml", "a: 1\nb: 2\na: 3\n").unwrap();
    assert_eq!(Value::Object(read), json!({"a": 3, "b": 2}));
}

#[test]
fn yaml_bombs_are_rejected() {
    let deep = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let aliases = (1..12).map(|level| {
        let above = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{above}]\n")
    });
    let bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned() + &aliases.collect::<String>();
    for text in [deep, bomb] {
        let failure = from_yaml("it", &text).unwrap_err();
        assert!(failure.message.contains("is not valid YAML"), "{failure}");
    }
}

#[test]
fn fields_are_found_by_pointer() {
    let object = json!({"spec": {"keys": ["a", "b"], "a/b": 1, "none": null}});
    let rows = [
        ("/spec/keys/1", Some(json!("b"))),
        ("/spec/keys", Some(json!(["a", "b"]))),
        ("/spec/a~1b", Some(json!(1))),
        ("/spec/none", None),
        ("/spec/keys/2", None),
        ("/status", None),
    ];
    for (pointer, expected) in rows {
        assert_eq!(lookup(&object, pointer), expected.as_ref(), "{pointer}");
    }
}

#[test]
fn rendering_is_canonical() {
    let values = map(json!({
        "z": 1, "a": {"on": true, "b.c/d": "text", "empty": {}}, "none": null, "list": [],
        "items": [{"name": "x", "more": [1, [2, 3]]}, "yes", 1.5, []],
        "texts": ["", "012", "1e3", "a: b", "two\nlines", "tab\t", "ünï", "\u{7f}\u{feff}\u{2028}", "~", "No"],
    }));
    let expected = r#"a:
  b.c/d: text
  empty: {}
  "on": true
items:
  - more:
      - 1
      - - 2
        - 3
    name: x
  - "yes"
  - 1.5
  - []
list: []
none: null
texts:
  - ""
  - "012"
  - "1e3"
  - "a: b"
  - "two\nlines"
  - "tab\t"
  - "ünï"
  - "\U0000007F\U0000FEFF\U00002028"
  - "~"
  - "No"
z: 1
"#;
    let rendered = render(&values);
    assert_eq!(rendered.text, expected);
    assert_eq!(rendered.digest, Digest::of(expected));
    assert_eq!(render(&Parameters::new()).text, "{}\n");
}

#[test]
fn debug_output_contains_no_values() {
    assert!(!format!("{:?}", render(&map(json!({"a": CANARY})))).contains(CANARY));
}

#[test]
fn violations_name_the_parameter_and_never_the_value() {
    let rows = [
        (
            json!({"properties": {"a": {"type": "integer"}}}),
            json!({"a": CANARY}),
            "a: the value is not of type \"integer\"",
        ),
        (
            json!({"properties": {"a": {"enum": ["x", "y"]}}}),
            json!({"a": CANARY}),
            "a: the value is not one of",
        ),
        (json!({"properties": {"a": {"const": 1}}}), json!({"a": CANARY}), "a: 1 was expected"),
        (
            json!({"properties": {"a": {"pattern": "^x$"}}}),
            json!({"a": CANARY}),
            "a: the value does not match \"^x$\"",
        ),
        (
            json!({"properties": {"a": {"maxLength": 3}}}),
            json!({"a": CANARY}),
            "a: the value is longer than 3 characters",
        ),
        (json!({"properties": {"a": {"not": {"type": "string"}}}}), json!({"a": CANARY}), "a: "),
        (
            json!({"properties": {"a": {"anyOf": [{"type": "null"}, false]}}}),
            json!({"a": CANARY}),
            "a: the value is not valid",
        ),
        (
            json!({"properties": {"a": {"oneOf": [true, true]}}}),
            json!({"a": CANARY}),
            "a: the value is valid under more",
        ),
        (
            json!({"properties": {"a": {"uniqueItems": true}}}),
            json!({"a": [CANARY, CANARY]}),
            "a: the value has non-unique",
        ),
        (
            json!({"properties": {"a": {"maxItems": 1}}}),
            json!({"a": [CANARY, CANARY]}),
            "a: the value has more than 1 item",
        ),
        (
            json!({"properties": {"a": {"contains": {"type": "null"}}}}),
            json!({"a": [CANARY]}),
            "a: None of the value",
        ),
        (json!({"properties": {"a": {"items": false}}}), json!({"a": [CANARY]}), "a"),
        (json!({"properties": {"a": {"items": {"type": "null"}}}}), json!({"a": [CANARY]}), "a[0]: "),
        (json!({"properties": {"a": false}}), json!({"a": CANARY}), "a: it is not allowed"),
        (
            json!({"properties": {"a": true}, "additionalProperties": false}),
            json!({"b": CANARY}),
            "Additional properties are not allowed ('b'",
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"b": CANARY}),
            "Unevaluated properties are not allowed ('b'",
        ),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"bb": CANARY}),
            "it contains a name that is not allowed: the name is longer",
        ),
        (json!({"required": ["a"]}), json!({"b": CANARY}), "\"a\" is a required property"),
        (json!({"required": ["a"]}), json!({"a": null, "b": CANARY}), "\"a\" is a required property"),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"format": "ipv4"}}}),
            json!({"a": CANARY}),
            "a: the value is not a \"ipv4\"",
        ),
        (
            json!({"properties": {"a.b": {"items": {"type": "integer"}}}}),
            json!({"a.b": [1, CANARY]}),
            "a\\.b[1]: ",
        ),
        (
            json!({"$defs": {"t": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/t"}}}),
            json!({"a": CANARY}),
            "a: ",
        ),
    ];
    for (schema, parameters, hint) in rows {
        let violations = Schema::new(&schema).unwrap().violations(&map(parameters)).unwrap();
        let failure = summarize(&violations).unwrap_or_else(|| panic!("{schema} accepts it"));
        assert_eq!(failure.category, Category::InvalidValues);
        let message =
            failure.message.strip_prefix("the parameters do not match the extension's schema: ").unwrap();
        assert!(message.starts_with(hint), "{message:?} does not begin with {hint:?}");
        assert!(!message.contains(CANARY), "{message}");
    }
}

#[test]
fn valid_parameters_have_no_violations_and_null_is_absent() {
    let schema = Schema::new(&json!({
        "type": "object", "additionalProperties": false, "required": ["a"],
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    }))
    .unwrap();
    assert_eq!(schema.violations(&map(json!({"a": 1, "b": null}))), Ok(vec![]));
    assert_eq!(summarize(&[]), None);
}

#[test]
fn ten_violations_are_listed_and_the_rest_is_counted() {
    let names: Vec<_> = (0..13).map(|number| format!("p{number}")).collect();
    let schema = Schema::new(&json!({"required": names})).unwrap();
    let violations = schema.violations(&Parameters::new()).unwrap();
    let message = summarize(&violations).unwrap().message;
    assert!(message.ends_with("; and 3 more"), "{message}");
    assert_eq!(message.matches("is a required property").count(), MAX_REPORTED);
}

#[test]
fn an_invalid_schema_is_explained() {
    let rows = [
        (json!({"type": "strin"}), "at /type: "),
        (json!({"properties": {"a": {"pattern": "("}}}), "is invalid: "),
        (json!({"properties": {"a": {"pattern": "^(a+)+(?=b)$"}}}), "is invalid: "),
        (json!({"$ref": "https://example.com/schema.json"}), "https://example.com/schema.json"),
        (json!({"$ref": "file:///etc/passwd"}), "file:///etc/passwd"),
        (json!({"$ref": "#/$defs/absent"}), "/$defs/absent"),
        (json!([1]), "is invalid: "),
    ];
    for (schema, hint) in rows {
        let failure = Failure::from(Schema::new(&schema).unwrap_err());
        assert_eq!(failure.category, Category::InvalidPackage);
        assert!(failure.message.contains(hint), "{failure} does not contain {hint:?}");
        assert!(failure.message.contains("correct parameters.schema"), "{failure}");
    }
}

/// Definitions, each with two references to the next.
fn doubling(levels: usize) -> Value {
    let mut definitions = Parameters::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "object"}));
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

fn nested(levels: usize) -> Parameters {
    map((0..levels).fold(json!({}), |inner, _| json!({"a": inner})))
}

#[test]
fn a_schema_that_takes_too_long_is_rejected() {
    let chain =
        (0..5000).map(|level| (format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)})));
    let chain: Parameters = chain.chain([("d5000".to_owned(), json!(true))]).collect();
    let twice = json!({"properties": {"a": {"$ref": "#"}}});
    let rows = [
        (doubling(60), Parameters::new(), "refer to each other too often"),
        (json!({"allOf": [twice, twice]}), nested(60), "refer to each other too often"),
        (
            json!({"$id": "https://example.com/s", "allOf": [
                {"properties": {"a": {"$ref": "https://example.com/s"}}}, {"properties": {"a": {"$ref": "#"}}},
            ]}),
            nested(60),
            "refer to each other too often",
        ),
        (json!({"$defs": chain, "$ref": "#/$defs/d0"}), Parameters::new(), "nested too deeply"),
        (
            (0..200).fold(json!(true), |inner, _| json!({"allOf": [inner]})),
            Parameters::new(),
            "nested too deeply",
        ),
        (json!({"enum": vec![0; 200_001]}), Parameters::new(), "too large"),
    ];
    for (schema, parameters, hint) in rows {
        let error = Schema::new(&schema).and_then(|schema| schema.violations(&parameters)).unwrap_err();
        assert!(matches!(error, SchemaError::Costly(_)), "{error}");
        assert!(error.to_string().contains(hint), "{error} does not contain {hint:?}");
    }
}

#[test]
fn recursion_that_ends_is_accepted() {
    for schema in [json!({"$ref": "#"}), json!({"properties": {"a": {"$ref": "#"}}}), doubling(8)] {
        assert_eq!(Schema::new(&schema).unwrap().violations(&nested(60)), Ok(vec![]), "{schema}");
    }
}

fn values() -> impl Strategy<Value = Parameters> {
    let text =
        prop_oneof!["[a-z0-9 .:#~\\-\n\"'\\\\]{0,8}", "\\PC{0,4}", Just("no".to_owned()), any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    let name = prop_oneof!["[abc]", text];
    let inner = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(prop_oneof!["[abc]", "[a-z.]{0,3}"], inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    collection::btree_map(name, inner, 0..5).prop_map(|map| map.into_iter().collect())
}

/// Returns every value that is not a map, with its path.
fn leaves(parameters: &Parameters) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    for (name, value) in parameters {
        match value {
            Value::Object(inner) => found.extend(leaves(inner).into_iter().map(|(mut path, value)| {
                path.insert(0, name.clone());
                (path, value)
            })),
            other => found.push((vec![name.clone()], other.clone())),
        }
    }
    found
}

fn at<'a>(parameters: &'a Parameters, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = parameters.get(first)?;
    if rest.is_empty() { Some(value) } else { at(value.as_object()?, rest) }
}

proptest! {
    #[test]
    fn merging_with_an_empty_or_equal_layer_changes_nothing(a in values()) {
        prop_assert_eq!(merge([a.clone(), Parameters::new()]), a.clone());
        prop_assert_eq!(merge([Parameters::new(), a.clone()]), a.clone());
        prop_assert_eq!(merge([a.clone(), a.clone()]), a);
    }

    #[test]
    fn the_last_layer_takes_precedence(a in values(), b in values()) {
        let merged = merge([a.clone(), b.clone()]);
        for (path, value) in leaves(&b) {
            prop_assert_eq!(at(&merged, &path), Some(&value));
        }
        prop_assert!(merged.keys().all(|name| a.contains_key(name) || b.contains_key(name)));
        prop_assert_eq!(merge([merged.clone(), b]), merged);
    }

    #[test]
    fn merging_is_associative(a in values(), b in values(), c in values()) {
        prop_assert_eq!(merge([merge([a.clone(), b.clone()]), c.clone()]), merge([a, b, c]));
    }

    #[test]
    fn rendered_values_parse_back_the_same(a in values()) {
        let text = render(&a).text;
        prop_assert_eq!(from_yaml("it", &text).map_err(|error| TestCaseError::fail(format!("{error}:\n{text}")))?, a);
    }
}

#[test]
fn sizes_are_about_those_of_the_json() {
    let rows = [
        json!({}),
        json!([]),
        json!(1),
        json!({"a": "text", "b": [{"c": null}, "e"]}),
        json!("x".repeat(1000)),
    ];
    for value in rows {
        let (estimated, exact) = (json_size(&value), value.to_string().len());
        assert!(estimated >= exact && estimated < exact + 20, "{estimated} for {value}");
    }
}
