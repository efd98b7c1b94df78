use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use serde_json::json;

use super::*;

/// More than any of the expressions needs that are not meant to need much.
const STEPS: u32 = 10_000;

fn object() -> Json {
    json!({
        "apiVersion": "example.dev/v1", "kind": "Widget",
        "metadata": {"name": "web", "generation": 3, "labels": {"example.dev/tier": "gold"}},
        "spec": {"replicas": 3, "ratio": 0.5, "names": ["a", "b", "b"], "empty": null, "text": "größe"},
        "status": {
            "phase": "Running", "ready": 2, "observedGeneration": 3,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ok"}, {"type": "Synced", "status": "False"},
            ],
        },
    })
}

fn result(source: &str) -> Result<bool, EvaluationError> {
    let expression = Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    expression.is_true(&object(), &mut Budget::new(STEPS))
}

/// Expressions that the interpreter of the crate `cel` evaluates in the same way. `None` means that there is no result.
const COMMON: &[(&str, Option<bool>)] = &[
    ("status.phase == 'Running'", Some(true)),
    ("status.phase != \"Running\"", Some(false)),
    ("status['phase'] == 'Running'", Some(true)),
    ("metadata.labels['example.dev/tier'] == 'gold'", Some(true)),
    ("status.observedGeneration == metadata.generation", Some(true)),
    ("status.ready >= spec.replicas", Some(false)),
    ("status.ready + 1 == spec.replicas && status.ready * 2 - 1 == 3 && spec.replicas / 2 == 1", Some(true)),
    ("spec.replicas % 2 == 1 && -spec.replicas < 0 && !(spec.replicas < 0)", Some(true)),
    ("spec.ratio < 1.0 && spec.ratio == 0.5 && spec.ratio + 0.5 == 1.0", Some(true)),
    ("has(status.phase)", Some(true)),
    ("has(status.missing)", Some(false)),
    ("!has(status.missing) || status.missing == 'x'", Some(true)),
    ("status.missing == 'x'", None),
    ("status.phase.missing == 'x'", None),
    // An error counts only if no other side decides.
    ("status.missing == 'x' || true", Some(true)),
    ("true || status.missing == 'x'", Some(true)),
    ("status.missing == 'x' && false", Some(false)),
    ("status.missing == 'x' && true", None),
    ("status.missing == 'x' || false", None),
    ("status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", Some(true)),
    ("status.conditions.all(c, c.status == 'True')", Some(false)),
    ("status.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True')", Some(true)),
    ("status.conditions.exists_one(c, c.status == 'True')", Some(true)),
    ("status.conditions.exists(c, c.reason == 'Ok')", Some(true)),
    ("status.conditions.all(c, c.reason == 'Ok')", None),
    ("status.conditions.filter(c, c.reason == 'Ok').size() == 1", None),
    ("status.conditions.map(c, c.type) == ['Ready', 'Synced']", Some(true)),
    ("status.conditions.map(c, c.status == 'True', c.type)[0] == 'Ready'", Some(true)),
    ("status.conditions.all(c, status.conditions.exists(d, d.type == c.type))", Some(true)),
    ("[1, 2].all(c, [3, 4].all(d, d > c)) && [1].all(c, [2].all(c, c == 2))", Some(true)),
    ("metadata.labels.exists(key, key.startsWith('example.dev/'))", Some(true)),
    ("status.conditions[1].type == 'Synced'", Some(true)),
    ("status.conditions[2].type == 'Synced'", None),
    ("status.conditions[-1].type == 'Synced'", None),
    ("'a' in spec.names && !('c' in spec.names) && 'phase' in status", Some(true)),
    (
        "spec.names.size() == 3 && size(spec.names) == 3 && size(spec.text) == 5 && size(status) > 0",
        Some(true),
    ),
    (
        "status.phase.contains('unn') && status.phase.startsWith('Run') && status.phase.endsWith('ing')",
        Some(true),
    ),
    ("status.phase.contains(1)", None),
    ("spec.empty == null", Some(true)),
    ("spec.names == ['a', 'b', 'b'] && spec.names != ['a']", Some(true)),
    ("status == status && status != spec", Some(true)),
    ("status.phase == 1", Some(false)),
    ("spec.replicas == 3.0", Some(true)),
    ("status.ready == 2 ? status.phase == 'Running' : status.missing", Some(true)),
    (
        "int('42') == 42 && string(42) == '42' && double(1) == 1.0 && int(2.9) == 2 && string(true) == 'true'",
        Some(true),
    ),
    ("int('x') == 42", None),
    ("1 / 0 == 1", None),
    ("9223372036854775807 + 1 == 0", None),
    ("'b' > 'a' && 'a' <= 'a'", Some(true)),
    ("status.phase > 1", None),
    ("!status.phase", None),
];

#[test]
fn expressions_have_the_results_of_the_language() {
    for (source, expected) in COMMON {
        assert_eq!(result(source).ok(), *expected, "{source}: {:?}", result(source));
    }
}

/// Numbers of an object are integers, as for an API server.
fn to_cel(json: &Json) -> cel::Value {
    match json {
        Json::Number(number) => {
            number.as_i64().map_or_else(|| number.as_f64().unwrap().into(), cel::Value::Int)
        }
        Json::Array(array) => array.iter().map(to_cel).collect::<Vec<_>>().into(),
        Json::Object(map) => {
            let map: HashMap<String, cel::Value> =
                map.iter().map(|(key, value)| (key.clone(), to_cel(value))).collect();
            map.into()
        }
        other => cel::to_value(other).unwrap(),
    }
}

#[test]
fn the_interpreter_of_the_crate_has_the_same_results() {
    let object = object();
    let mut context = cel::Context::default();
    for (name, value) in object.as_object().unwrap() {
        context.add_variable_from_value(name.as_str(), to_cel(value));
    }
    for (source, expected) in COMMON {
        let value = cel::Program::compile(source).unwrap().execute(&context);
        let boolean = value.ok().and_then(|value| match value {
            cel::Value::Bool(boolean) => Some(boolean),
            _ => None,
        });
        assert_eq!(boolean, *expected, "{source}");
    }
}

#[test]
fn optional_fields_have_defaults() {
    let rows = [
        ("status.?conditions.orValue([]).exists(c, c.type == 'Ready')", Ok(true)),
        ("status.?missing.orValue([]).exists(c, c.type == 'Ready')", Ok(false)),
        ("status.?missing.field.orValue('x') == 'x' && !status.?missing.hasValue()", Ok(true)),
        ("status.?phase.value() == 'Running' && spec.names[?1].orValue('x') == 'b'", Ok(true)),
        ("spec.names[?7].hasValue() || has(status.?missing.field)", Ok(false)),
        ("status.?missing.value() == 'x'", Err(EvaluationError::NoIndex)),
        ("status.phase.?x.hasValue()", Err(EvaluationError::NoField("x".to_owned()))),
    ];
    for (source, expected) in rows {
        assert_eq!(result(source), expected, "{source}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let rows = [
        ("status.missing == 'x'", "there is no field `missing`"),
        ("data.missing == 'x'", "there is no field `data`"),
        ("spec.replicas", "the result is neither `true` nor `false`"),
        ("size(1) == 1", "`size` cannot be used with values of these types"),
    ];
    for (source, expected) in rows {
        assert_eq!(result(source).unwrap_err().to_string(), expected, "{source}");
    }
}

#[test]
fn an_invalid_expression_is_refused_with_its_position() {
    let deep = format!("{}true", "!(".repeat(100)) + &")".repeat(100);
    let rows = [
        ("status.phase ==", "line 1, column 16: mismatched input '<EOF>' expecting expression"),
        ("status.phase ==\n  'a' b", "line 2, column 7: mismatched input 'b' expecting <EOF>"),
        ("status.", "line 1, column 8: expected identifier after '.'"),
        ("", "line 1, column 1: mismatched input '<EOF>' expecting expression"),
        ("self.status.phase == 'x'", "unknown variable `self`"),
        ("status.conditions.all(c, d.type == 'x')", "unknown variable `d`"),
        ("status.conditions.all(c, true) && c", "unknown variable `c`"),
        ("status.phase.matches('.*')", "function `matches` is not supported with 1 arguments"),
        ("timestamp(status.phase) == null", "function `timestamp` is not supported"),
        ("status.phase.exists(c)", "function `exists` is not supported"),
        ("1u == 1u", "unsigned numbers are not supported"),
        ("b'a' == b'a'", "bytes are not supported"),
        ("{'a': 1} == {}", "maps are not supported"),
        ("Widget{name: 'x'} == null", "messages are not supported"),
        (&"a".repeat(MAX_LENGTH + 1), "it is longer than 1024 characters"),
        (&deep, "it is nested too deeply"),
        (&("1+".repeat(500) + "1 == 1"), "it is nested too deeply"),
    ];
    for (source, expected) in rows {
        let error = Expression::parse(source).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{source}: {error}");
    }
}

/// Runs in a thread with as little stack as one of the runtime's, and no time to lose.
fn in_a_worker(test: impl FnOnce() + Send + 'static) {
    let began = Instant::now();
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "after {:?}", began.elapsed());
}

#[test]
fn no_text_keeps_the_parser_busy() {
    in_a_worker(|| {
        let parts = [
            "(", "[", "{", "!", "-", "! ", "- ", "a?", "a?b:", "a.b(", "[a,", "a&&", "a||b&&", "a+", "a<",
            "a.", "a[", "{a:", "'\\x", "(a?b:", "--(", "has(a.", "a.map(x,", "a.?b(", "\u{c}\0", "\u{e9}",
            "'", "\"\"\"", "`", "//", "1e", "0x",
        ];
        for part in parts {
            let text: String = part.chars().cycle().take(MAX_LENGTH).collect();
            let _ = Expression::parse(&text);
            let half: String = part.chars().cycle().take(MAX_LENGTH / 2).collect();
            for close in [")", "]", "}", "1", ":1"] {
                let _ = Expression::parse(&(half.clone() + &close.repeat(100)));
            }
        }
    });
}

#[test]
fn no_expression_keeps_the_evaluation_busy() {
    in_a_worker(|| {
        let numbers: Vec<_> = (0..100_000).collect();
        let object = json!({
            "metadata": {}, "spec": {"list": numbers, "text": "x".repeat(1 << 20), "same": "x".repeat(1 << 20)},
            "status": {"list": numbers},
        });
        let nested = "[spec.list]".to_owned() + &".map(a, [a, a, a, a])".repeat(20);
        let sources = [
            "spec.list.all(a, spec.list.all(b, spec.list.all(c, true)))".to_owned(),
            "spec.list.all(a, spec == status || spec.list == status.list)".to_owned(),
            "spec.list.all(a, spec.text == spec.same || spec.text.contains('y'))".to_owned(),
            "spec.list.all(a, size(spec.text) > 0 && spec.text in spec && int(spec.text) == 1)".to_owned(),
            "spec.list.all(a, -1 in status.list)".to_owned(),
            format!("{nested} == {nested}"),
            // The error of what is out of budget is no side of another.
            "spec.list.exists(a, spec.list.all(b, true)) || true".to_owned(),
        ];
        for source in sources {
            let expression = Expression::parse(&source).unwrap_or_else(|error| panic!("{source}: {error}"));
            let result = expression.is_true(&object, &mut Budget::new(STEPS));
            assert_eq!(result, Err(EvaluationError::OutOfBudget), "{source}");
        }
    });
}
