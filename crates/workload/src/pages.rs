//! The pages of lists, and the events of watches, as far as they are the same for all kinds. Objects are parsed one at a time, and
//! only their parts that are used: a server may send texts that take many times their size once they are parsed.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{parse_gate::parse_limited, response::MAX_EVENT, watch_error::WatchError};

/// Maximum number of objects in a page: twice as many as are requested at most.
const MAX_ITEMS: usize = 2_000;
/// Maximum number of bytes of a name or a version. Those of API servers are shorter.
pub const MAX_NAME: usize = 253;
/// Maximum number of bytes of the token for the next page, which contains names.
const MAX_TOKEN: usize = 4096;
/// Maximum number of values in an object, which take memory each. An object of 3 MiB has fewer.
const MAX_VALUES: usize = 100_000;
/// A shorter object has few values.
const SHORT_OBJECT: usize = 64 << 10;
/// A shorter page takes little memory, whatever is wrong with it.
const LARGE_PAGE: usize = 1 << 20;

/// A page of a list.
#[derive(Deserialize)]
pub struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: String,
}

impl<'a> Page<'a> {
    /// Reads a page.
    pub fn parse(text: &'a [u8]) -> Result<Self, WatchError> {
        let page: Self = parse_page(text)?;
        let PageMetadata { resource_version, token } = &page.metadata;
        if resource_version.len() > MAX_NAME || token.len() > MAX_TOKEN {
            return Err(WatchError::Unreadable);
        }
        Ok(page)
    }

    /// Returns the objects, which are not parsed yet.
    pub fn items(&self) -> &[&'a RawValue] {
        self.items.as_slice()
    }

    /// Returns the version of the list, and the token for the next page. It is empty after the last one.
    pub fn into_position(self) -> (String, String) {
        (self.metadata.resource_version, self.metadata.token)
    }
}

/// The objects of a page. A page with too many is refused before they take memory.
#[derive(Default)]
pub struct Items<'a>(Vec<&'a RawValue>);

impl<'a> Items<'a> {
    pub fn as_slice(&self) -> &[&'a RawValue] {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_ITEMS} objects")
    }

    fn visit_unit<E>(self) -> Result<Items<'de>, E> {
        Ok(Items::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Items<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom("too many objects"));
            }
            items.push(item);
        }
        Ok(Items(items))
    }
}

/// An event of a watch.
#[derive(Deserialize)]
pub struct Event<'a> {
    #[serde(rename = "type")]
    pub change: Change,
    #[serde(borrow)]
    pub object: &'a RawValue,
}

impl<'a> Event<'a> {
    /// Reads an event.
    pub fn parse(line: &'a [u8]) -> Result<Self, WatchError> {
        serde_json::from_slice(line).map_err(|_| WatchError::Unreadable)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Change {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Reads JSON. The error says nothing about the content, which may be secret.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a RawValue) -> Result<T, WatchError> {
    serde_json::from_str(text.get()).map_err(|_| WatchError::Unreadable)
}

/// Reads a response whose parts are not parsed.
pub fn parse_page<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, WatchError> {
    let parsed = parse_limited(text.len() > LARGE_PAGE, || serde_json::from_slice(text));
    parsed.map_err(|_| WatchError::Unreadable)
}

/// Reads an object, unless it would take too much memory. `read` gets its text.
pub fn read_limited<T>(
    object: &RawValue,
    read: impl FnOnce(&RawValue) -> Result<T, WatchError>,
) -> Result<T, WatchError> {
    check_object(object)?;
    parse_limited(object.get().len() > SHORT_OBJECT, || read(object))
}

/// Returns an error if an object would take too much memory once it is parsed.
fn check_object(object: &RawValue) -> Result<(), WatchError> {
    let text = object.get().as_bytes();
    if text.len() <= SHORT_OBJECT {
        return Ok(());
    }
    // Some of these characters may be in texts, which only makes the number larger.
    let values = || text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if text.len() > MAX_EVENT || values() > MAX_VALUES {
        return Err(WatchError::Unreadable);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_read(page: &Value) -> bool {
        Page::parse(page.to_string().as_bytes()).is_ok()
    }

    #[test]
    fn the_number_of_objects_and_the_length_of_versions_are_limited() {
        let empty = |count: usize| vec![json!({}); count];
        let page =
            json!({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": empty(MAX_ITEMS)});
        let text = page.to_string();
        let read = Page::parse(text.as_bytes()).unwrap();
        assert_eq!(read.items().len(), MAX_ITEMS);
        assert_eq!(read.into_position(), ("7".to_owned(), "next".to_owned()));
        let version = |length: usize| json!({"metadata": {"resourceVersion": "7".repeat(length)}});
        let token = |length: usize| json!({"metadata": {"continue": "t".repeat(length)}, "items": null});
        let rows = [
            (json!({"metadata": {}, "items": empty(MAX_ITEMS + 1)}), false),
            (json!({"metadata": {}, "items": vec![0; 1_000_000]}), false),
            (json!({"metadata": {}, "items": "canary"}), false),
            (json!({"metadata": {}, "unknown": vec![0; 10_000]}), true),
            (version(MAX_NAME), true),
            (version(MAX_NAME + 1), false),
            (token(MAX_TOKEN), true),
            (token(MAX_TOKEN + 1), false),
        ];
        for (page, expected) in rows {
            assert_eq!(is_read(&page), expected, "{:.80}", page.to_string());
        }
    }

    #[test]
    fn objects_with_too_many_values_or_bytes_are_refused() {
        let is_refused =
            |object: &Value| check_object(&serde_json::value::to_raw_value(object).unwrap()).is_err();
        assert!(!is_refused(&json!({"spec": {"text": "x".repeat(3 << 20)}})));
        assert!(is_refused(&json!({"spec": {"text": "x".repeat(MAX_EVENT)}})));
        assert!(!is_refused(&json!({"spec": vec![0; MAX_VALUES / 2]})));
        assert!(is_refused(&json!({"spec": vec![0; MAX_VALUES + 1]})));
        assert!(is_refused(&json!({"metadata": {"managedFields": vec![json!({}); MAX_VALUES / 2 + 1]}})));
    }

    #[test]
    fn an_event_names_its_change() {
        let line = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#;
        let event = Event::parse(line).unwrap();
        assert_eq!(event.change, Change::Bookmark);
        assert_eq!(event.object.get(), r#"{"metadata":{"resourceVersion":"12"}}"#);
    }
}
