//! The values of expressions. They borrow from the object and from the expression.

use std::{borrow::Cow, cmp::Ordering, rc::Rc};

use serde_json::{Map, Value as Json};

use super::{Budget, EvaluationError};

/// A text is read in pieces of so many bytes, each of which is a step.
const BYTES_PER_STEP: usize = 64;

/// Returns the steps that it takes to read a text.
pub fn steps(text: &str) -> usize {
    text.len() / BYTES_PER_STEP
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// A list of the object.
    Array(&'a [Json]),
    /// A list that the expression has made.
    List(Rc<[Value<'a>]>),
    Map(&'a Map<String, Json>),
    Optional(Option<Box<Value<'a>>>),
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(boolean) => Self::Boolean(*boolean),
            Json::Number(number) => number
                .as_i64()
                .map_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::NAN)), Self::Integer),
            Json::String(text) => Self::Text(text.as_str().into()),
            Json::Array(array) => Self::Array(array),
            Json::Object(map) => Self::Map(map),
        }
    }
}

impl<'a> Value<'a> {
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Box::new(value)))
    }

    /// Returns the elements of a list, or the keys of a map.
    pub fn elements(&self) -> Option<Elements<'a, '_>> {
        Some(match self {
            Self::Array(array) => Elements::Array(array.iter()),
            Self::List(list) => Elements::List(list.iter()),
            Self::Map(map) => Elements::Keys(map.keys()),
            _ => return None,
        })
    }

    /// Returns whether two values are equal. Values of different types are not, but numbers can be.
    pub fn equals(&self, other: &Value<'_>, budget: &mut Budget) -> Result<bool, EvaluationError> {
        budget.take(1)?;
        Ok(match (self, other) {
            (Self::Null, Value::Null) => true,
            (Self::Boolean(one), Value::Boolean(two)) => one == two,
            (Self::Text(one), Value::Text(two)) => {
                budget.take(steps(one).min(steps(two)))?;
                one == two
            }
            (Self::Map(one), Value::Map(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (key, value) in *one {
                    budget.take(1 + steps(key))?;
                    let Some(same) = two.get(key) else { return Ok(false) };
                    if !Value::from(value).equals(&same.into(), budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Array(_) | Self::List(_), Value::Array(_) | Value::List(_)) => {
                let (Some(mut one), Some(mut two)) = (self.elements(), other.elements()) else {
                    return Ok(false);
                };
                loop {
                    match (one.next(), two.next()) {
                        (None, None) => break true,
                        (Some(one), Some(two)) if one.equals(&two, budget)? => {}
                        _ => break false,
                    }
                }
            }
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        })
    }

    /// Compares two numbers or two texts.
    pub fn compare(
        &self,
        other: &Value<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Ordering>, EvaluationError> {
        if let (Self::Text(one), Value::Text(two)) = (self, other) {
            budget.take(steps(one).min(steps(two)))?;
            return Ok(Some(one.cmp(two)));
        }
        let is_number = |value: &Value<'_>| matches!(value, Value::Integer(_) | Value::Double(_));
        if is_number(self) && is_number(other) {
            Ok(compare_numbers(self, other))
        } else {
            Err(EvaluationError::Type("<"))
        }
    }

    /// Returns the number of characters, elements or entries.
    pub fn size(&self) -> Result<usize, EvaluationError> {
        Ok(match self {
            Self::Text(text) => text.chars().count(),
            Self::Array(array) => array.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            _ => return Err(EvaluationError::Type("size")),
        })
    }
}

/// Returns `None` if one of the values is no number.
#[expect(clippy::cast_precision_loss, reason = "a double is as precise as it can be")]
fn compare_numbers(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    match (one, two) {
        (Value::Integer(one), Value::Integer(two)) => Some(one.cmp(two)),
        (Value::Integer(one), Value::Double(two)) => (*one as f64).partial_cmp(two),
        (Value::Double(one), Value::Integer(two)) => one.partial_cmp(&(*two as f64)),
        (Value::Double(one), Value::Double(two)) => one.partial_cmp(two),
        _ => None,
    }
}

/// The elements of a list, or the keys of a map.
pub enum Elements<'a, 'l> {
    Array(std::slice::Iter<'a, Json>),
    List(std::slice::Iter<'l, Value<'a>>),
    Keys(serde_json::map::Keys<'a>),
}

impl<'a> Iterator for Elements<'a, '_> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        match self {
            Self::Array(array) => array.next().map(Value::from),
            Self::List(list) => list.next().cloned(),
            Self::Keys(keys) => keys.next().map(|key| Value::Text(key.as_str().into())),
        }
    }
}
