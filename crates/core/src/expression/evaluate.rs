//! Evaluates an expression. Each part that is evaluated is a step of the budget.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{
    Budget, EvaluationError,
    node::{Collect, ForEach, Function, Node, Operator},
    value::{Value, steps},
};

type Evaluated<'a> = Result<Value<'a>, EvaluationError>;

/// Evaluates an expression about an object.
pub fn evaluate<'a>(root: &'a Node, object: &'a Json, budget: &mut Budget) -> Evaluated<'a> {
    Evaluation { object, loops: Vec::new(), budget }.value(root)
}

struct Evaluation<'a, 'b> {
    object: &'a Json,
    /// The variables of the loops around a part, the outermost first.
    loops: Vec<Value<'a>>,
    budget: &'b mut Budget,
}

impl<'a> Evaluation<'a, '_> {
    fn value(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.budget.take(1)?;
        Ok(match node {
            Node::Null => Value::Null,
            Node::Boolean(boolean) => Value::Boolean(*boolean),
            Node::Integer(number) => Value::Integer(*number),
            Node::Double(number) => Value::Double(*number),
            Node::Text(text) => Value::Text((&**text).into()),
            Node::List(nodes) => {
                Value::List(nodes.iter().map(|node| self.value(node)).collect::<Result<_, _>>()?)
            }
            Node::Root(name) => self
                .object
                .get(name)
                .map(Value::from)
                .ok_or_else(|| EvaluationError::NoField((*name).to_owned()))?,
            Node::Loop(number) => self.loops.get(*number).cloned().unwrap_or(Value::Null),
            Node::Field { of, name, is_optional } => {
                let of = self.value(of)?;
                let missing = || EvaluationError::NoField(name.to_string());
                optional(of, *is_optional, missing, |of| field(of, name))?
            }
            Node::HasField { of, name } => match self.value(of)? {
                Value::Optional(None) => Value::Boolean(false),
                Value::Optional(Some(of)) => Value::Boolean(field(&of, name)?.is_some()),
                of => Value::Boolean(field(&of, name)?.is_some()),
            },
            Node::Index { of, index, is_optional } => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                self.take_for(&index)?;
                optional(of, *is_optional, || EvaluationError::NoIndex, |of| element(of, &index))?
            }
            Node::Not(of) => Value::Boolean(!self.boolean(of)?),
            Node::Negate(of) => match self.value(of)? {
                Value::Integer(number) => {
                    Value::Integer(number.checked_neg().ok_or(EvaluationError::Arithmetic)?)
                }
                Value::Double(number) => Value::Double(-number),
                _ => return Err(EvaluationError::Type("-")),
            },
            Node::And(nodes) => Value::Boolean(self.all_or_any(nodes, false)?),
            Node::Or(nodes) => Value::Boolean(self.all_or_any(nodes, true)?),
            Node::Condition(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.boolean(condition)? { yes } else { no };
                self.value(chosen)?
            }
            Node::Operator(operator, sides) => {
                let [left, right] = &**sides;
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.operator(*operator, &left, &right)?
            }
            Node::Call(function, arguments) => {
                let arguments: Vec<_> =
                    arguments.iter().map(|node| self.value(node)).collect::<Result<_, _>>()?;
                self.call(*function, &arguments)?
            }
            Node::ForEach(for_each) => self.for_each(for_each)?,
        })
    }

    /// Takes the steps that it takes to read a text, whatever is done with it.
    fn take_for(&mut self, value: &Value<'_>) -> Result<(), EvaluationError> {
        match value {
            Value::Text(text) => self.budget.take(steps(text)),
            _ => Ok(()),
        }
    }

    fn boolean(&mut self, node: &'a Node) -> Result<bool, EvaluationError> {
        match self.value(node)? {
            Value::Boolean(boolean) => Ok(boolean),
            _ => Err(EvaluationError::NoBoolean),
        }
    }

    fn all_or_any(&mut self, nodes: &'a [Node], decides: bool) -> Result<bool, EvaluationError> {
        let mut fold = Fold::new(decides);
        for node in nodes {
            let value = self.boolean(node);
            if fold.is_decided(value)? {
                break;
            }
        }
        fold.result()
    }

    fn for_each(&mut self, for_each: &'a ForEach) -> Evaluated<'a> {
        let range = self.value(&for_each.range)?;
        let elements = range.elements().ok_or(EvaluationError::Type("for each"))?;
        let mut fold = Fold::new(matches!(for_each.result, Collect::Exists));
        let (mut list, mut count) = (Vec::new(), 0_usize);
        for element in elements {
            self.loops.push(element);
            let condition = for_each.condition.as_ref().map_or(Ok(true), |condition| self.boolean(condition));
            let is_decided = match (&for_each.result, condition) {
                (Collect::All | Collect::Exists, condition) => fold.is_decided(condition),
                (Collect::ExistsOne, condition) => condition.map(|counts| {
                    count += usize::from(counts);
                    false
                }),
                (Collect::Elements, condition) => condition.map(|counts| {
                    list.extend(self.loops.last().filter(|_| counts).cloned());
                    false
                }),
                (Collect::Mapped(_), Ok(false)) => Ok(false),
                (Collect::Mapped(mapped), Ok(true)) => self.value(mapped).map(|value| {
                    list.push(value);
                    false
                }),
                (Collect::Mapped(_), Err(error)) => Err(error),
            };
            self.loops.pop();
            if is_decided? {
                break;
            }
        }
        Ok(match for_each.result {
            Collect::All | Collect::Exists => Value::Boolean(fold.result()?),
            Collect::ExistsOne => Value::Boolean(count == 1),
            Collect::Elements | Collect::Mapped(_) => Value::List(list.into()),
        })
    }

    fn operator(&mut self, operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Evaluated<'a> {
        let mut compared = |is: fn(Ordering) -> bool| {
            left.compare(right, self.budget).map(|order| Value::Boolean(order.is_some_and(is)))
        };
        match operator {
            Operator::Equals => Ok(Value::Boolean(left.equals(right, self.budget)?)),
            Operator::NotEquals => Ok(Value::Boolean(!left.equals(right, self.budget)?)),
            Operator::Less => compared(Ordering::is_lt),
            Operator::LessOrEqual => compared(Ordering::is_le),
            Operator::Greater => compared(Ordering::is_gt),
            Operator::GreaterOrEqual => compared(Ordering::is_ge),
            Operator::In => self.is_in(left, right).map(Value::Boolean),
            Operator::Add
            | Operator::Subtract
            | Operator::Multiply
            | Operator::Divide
            | Operator::Remainder => arithmetic(operator, left, right),
        }
    }

    fn is_in(&mut self, element: &Value<'a>, of: &Value<'a>) -> Result<bool, EvaluationError> {
        if let (Value::Text(key), Value::Map(map)) = (element, of) {
            self.take_for(element)?;
            return Ok(map.contains_key(&**key));
        }
        for one in of.elements().ok_or(EvaluationError::Type("in"))? {
            if one.equals(element, self.budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn call(&mut self, function: Function, arguments: &[Value<'a>]) -> Evaluated<'a> {
        for argument in arguments {
            self.take_for(argument)?;
        }
        Ok(match (function, arguments) {
            (Function::Size, [of]) => {
                Value::Integer(i64::try_from(of.size()?).map_err(|_| EvaluationError::Arithmetic)?)
            }
            (Function::Contains, [Value::Text(text), Value::Text(part)]) => {
                Value::Boolean(text.contains(&**part))
            }
            (Function::StartsWith, [Value::Text(text), Value::Text(part)]) => {
                Value::Boolean(text.starts_with(&**part))
            }
            (Function::EndsWith, [Value::Text(text), Value::Text(part)]) => {
                Value::Boolean(text.ends_with(&**part))
            }
            (Function::ToInteger, [of]) => to_integer(of)?,
            (Function::ToDouble, [of]) => to_double(of)?,
            (Function::ToText, [Value::Text(text)]) => Value::Text(text.clone()),
            (Function::ToText, [Value::Boolean(boolean)]) => Value::Text(boolean.to_string().into()),
            (Function::ToText, [Value::Integer(number)]) => Value::Text(number.to_string().into()),
            (Function::ToText, [Value::Double(number)]) => Value::Text(number.to_string().into()),
            (Function::HasValue, [Value::Optional(value)]) => Value::Boolean(value.is_some()),
            (Function::OrValue, [Value::Optional(Some(value)), _])
            | (Function::OptionalValue, [Value::Optional(Some(value))]) => (**value).clone(),
            (Function::OrValue, [Value::Optional(None), other]) => other.clone(),
            (Function::OptionalValue, [Value::Optional(None)]) => return Err(EvaluationError::NoIndex),
            (function, _) => return Err(EvaluationError::Type(name(function))),
        })
    }
}

/// The result of `&&` and `||`, which does not depend on the order of their sides: an error counts only if no other side decides.
struct Fold {
    /// The value that decides.
    decides: bool,
    is_decided: bool,
    error: Option<EvaluationError>,
}

impl Fold {
    fn new(decides: bool) -> Self {
        Self { decides, is_decided: false, error: None }
    }

    /// Takes in a side. Returns whether the others do not matter.
    fn is_decided(&mut self, side: Result<bool, EvaluationError>) -> Result<bool, EvaluationError> {
        match side {
            Err(EvaluationError::OutOfBudget) => return Err(EvaluationError::OutOfBudget),
            Err(error) => self.error = Some(error),
            Ok(side) => self.is_decided = side == self.decides,
        }
        Ok(self.is_decided)
    }

    fn result(self) -> Result<bool, EvaluationError> {
        match self.error {
            Some(error) if !self.is_decided => Err(error),
            _ => Ok(self.is_decided == self.decides),
        }
    }
}

/// Applies an access to a value, or to the value in an optional. Then the result is optional, too.
fn optional<'a>(
    of: Value<'a>,
    is_optional: bool,
    missing: impl FnOnce() -> EvaluationError,
    access: impl FnOnce(&Value<'a>) -> Result<Option<Value<'a>>, EvaluationError>,
) -> Evaluated<'a> {
    let (found, is_optional) = match of {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(of)) => (access(&of)?, true),
        of => (access(&of)?, is_optional),
    };
    match found {
        Some(found) if is_optional => Ok(Value::some(found)),
        Some(found) => Ok(found),
        None if is_optional => Ok(Value::Optional(None)),
        None => Err(missing()),
    }
}

fn field<'a>(of: &Value<'a>, name: &str) -> Result<Option<Value<'a>>, EvaluationError> {
    match of {
        Value::Map(map) => Ok(map.get(name).map(Value::from)),
        _ => Err(EvaluationError::NoField(name.to_owned())),
    }
}

fn element<'a>(of: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>, EvaluationError> {
    match (of, index) {
        (Value::Map(map), Value::Text(key)) => Ok(map.get(&**key).map(Value::from)),
        (Value::Array(array), Value::Integer(number)) => {
            Ok(usize::try_from(*number).ok().and_then(|number| array.get(number)).map(Value::from))
        }
        (Value::List(list), Value::Integer(number)) => {
            Ok(usize::try_from(*number).ok().and_then(|number| list.get(number)).cloned())
        }
        _ => Err(EvaluationError::Type("[]")),
    }
}

fn arithmetic<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => {
            let result = match operator {
                Operator::Add => left.checked_add(*right),
                Operator::Subtract => left.checked_sub(*right),
                Operator::Multiply => left.checked_mul(*right),
                Operator::Divide => left.checked_div(*right),
                _ => left.checked_rem(*right),
            };
            result.map(Value::Integer).ok_or(EvaluationError::Arithmetic)
        }
        (Value::Double(left), Value::Double(right)) => match operator {
            Operator::Add => Ok(Value::Double(left + right)),
            Operator::Subtract => Ok(Value::Double(left - right)),
            Operator::Multiply => Ok(Value::Double(left * right)),
            Operator::Divide => Ok(Value::Double(left / right)),
            _ => Err(EvaluationError::Type("%")),
        },
        _ => Err(EvaluationError::Type("+ - * / %")),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the range is checked")]
fn to_integer<'a>(of: &Value<'a>) -> Evaluated<'a> {
    let number = match of {
        Value::Integer(number) => Some(*number),
        Value::Double(number) if number.abs() < i64::MAX as f64 => Some(*number as i64),
        Value::Text(text) => text.parse().ok(),
        Value::Double(_) => None,
        _ => return Err(EvaluationError::Type("int")),
    };
    number.map(Value::Integer).ok_or(EvaluationError::Arithmetic)
}

#[expect(clippy::cast_precision_loss, reason = "a double is as precise as it can be")]
fn to_double<'a>(of: &Value<'a>) -> Evaluated<'a> {
    let number = match of {
        Value::Integer(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        Value::Text(text) => text.parse().ok(),
        _ => return Err(EvaluationError::Type("double")),
    };
    number.map(Value::Double).ok_or(EvaluationError::Arithmetic)
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Size => "size",
        Function::Contains => "contains",
        Function::StartsWith => "startsWith",
        Function::EndsWith => "endsWith",
        Function::ToInteger => "int",
        Function::ToDouble => "double",
        Function::ToText => "string",
        Function::HasValue => "hasValue",
        Function::OptionalValue => "value",
        Function::OrValue => "orValue",
    }
}
