//! Expressions in the [Common Expression Language](https://cel.dev) (CEL) about an object in JSON form.
//!
//! Users write them in policies, so neither reading nor evaluating one may take long or much memory, whatever it says. The crate
//! `cel` parses them. Its interpreter cannot be interrupted and copies what it iterates over, so the evaluation is here: it has
//! a budget, borrows the object, and supports what tells the state of an object: no regular expressions, no time, and no
//! operator that makes a text or a list longer.

mod compile;
mod evaluate;
mod node;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;

use serde_json::Value as Json;

use self::{node::Node, value::Value};

/// Maximum length of an expression, in characters.
pub const MAX_LENGTH: usize = 1024;

/// An expression that can be evaluated.
#[derive(Clone)]
pub struct Expression {
    source: Box<str>,
    root: Node,
}

/// Why a text is no expression that can be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("it is longer than {MAX_LENGTH} characters")]
    TooLong,
    #[error("line {line}, column {column}: {message}")]
    Syntax { line: usize, column: usize, message: String },
    #[error("it is nested too deeply")]
    TooDeep,
    #[error(
        "unknown variable `{0}`; there are `apiVersion`, `kind`, `metadata`, `spec`, `status` and `data` of the object"
    )]
    UnknownVariable(String),
    #[error("function `{0}` is not supported with {1} arguments")]
    UnknownFunction(String, usize),
    #[error("{0} are not supported")]
    Unsupported(&'static str),
}

/// Why an expression has no result for an object. The messages contain nothing of the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    #[error("there is no field `{0}`")]
    NoField(String),
    #[error("an index is not in the list or map")]
    NoIndex,
    #[error("`{0}` cannot be used with values of these types")]
    Type(&'static str),
    #[error("a number is too large, or divided by zero")]
    Arithmetic,
    #[error("the result is neither `true` nor `false`")]
    NoBoolean,
    #[error("it takes too many steps for this object")]
    OutOfBudget,
}

/// How much work the evaluation of expressions may still do.
#[derive(Debug)]
pub struct Budget(u32);

impl Budget {
    pub fn new(steps: u32) -> Self {
        Self(steps)
    }

    /// Takes steps from the budget.
    fn take(&mut self, steps: usize) -> Result<(), EvaluationError> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.0.checked_sub(steps));
        self.0 = left.unwrap_or_default();
        left.map(|_| ()).ok_or(EvaluationError::OutOfBudget)
    }
}

impl Expression {
    /// Reads an expression.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        if source.chars().nth(MAX_LENGTH).is_some() {
            return Err(ExpressionError::TooLong);
        }
        Ok(Self { source: source.into(), root: compile::compile(source)? })
    }

    /// Evaluates the expression, whose result has to be true or false. Its variables are the fields of the object.
    pub fn is_true(&self, object: &Json, budget: &mut Budget) -> Result<bool, EvaluationError> {
        match evaluate::evaluate(&self.root, object, budget)? {
            Value::Boolean(is_true) => Ok(is_true),
            _ => Err(EvaluationError::NoBoolean),
        }
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.source)
    }
}
