//! The conditions in the status of an object in JSON form.

use serde_json::Value;

/// Longest text of a condition that is repeated, in characters.
const LONGEST_TEXT: usize = 256;

/// Returns the condition of this type.
pub(super) fn find<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

/// Returns the condition of this type if it has this status.
pub(super) fn with_status<'a>(object: &'a Value, type_: &str, status: &str) -> Option<&'a Value> {
    find(object, type_).filter(|condition| condition["status"] == status)
}

/// Returns the reason and the message of a condition, for users.
pub(super) fn text(condition: &Value) -> String {
    let part = |field: &str| condition[field].as_str().map(str::trim).filter(|text| !text.is_empty());
    let text = match (part("reason"), part("message")) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => String::new(),
    };
    shortened(&text)
}

/// Returns the beginning of a text, so that it fits into a message about several objects.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns `what`, followed by the text of the condition if it has one.
pub(super) fn explain(what: &str, condition: &Value) -> String {
    let text = text(condition);
    if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") }
}
