//! Reads the text of an expression.

use cel::{
    ParseErrors,
    common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators},
    parser::PrattParser,
};

use super::{
    ExpressionError,
    node::{Collect, ForEach, Function, Node, Operator},
};

/// How deep the parts of an expression may be nested. Both the parser and the evaluation call themselves for each level.
const MAX_DEPTH: u16 = 48;
/// The fields of an object that an expression can use.
const ROOTS: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "status", "data"];

/// Reads an expression.
///
/// The default parser of the crate needs so much stack that twenty parentheses abort the process, so this uses the other.
pub fn compile(source: &str) -> Result<Node, ExpressionError> {
    let parser = PrattParser::new()
        .max_recursion_depth(MAX_DEPTH)
        .enable_optional_syntax(true)
        .enable_variadic_operator_asts(true);
    let parsed = parser.parse(source).map_err(|errors| syntax_error(&errors))?;
    Compiler { loops: Vec::new(), depth: 0 }.node(&parsed)
}

/// Returns the first error. Those about limits of the parser have no position.
fn syntax_error(errors: &ParseErrors) -> ExpressionError {
    let position = |number: isize| usize::try_from(number).unwrap_or_default();
    let is_too_deep = errors.errors.iter().any(|error| error.msg.contains("recursion limit"));
    let Some(error) = errors.errors.iter().find(|error| error.pos.0 > 0 && !is_too_deep) else {
        return ExpressionError::TooDeep;
    };
    ExpressionError::Syntax {
        line: position(error.pos.0),
        column: position(error.pos.1),
        message: error.msg.trim_start_matches("Syntax error: ").to_owned(),
    }
}

struct Compiler<'a> {
    /// The variables of the loops around a part, the outermost first.
    loops: Vec<&'a str>,
    depth: u16,
}

impl<'a> Compiler<'a> {
    fn node(&mut self, parsed: &'a IdedExpr) -> Result<Node, ExpressionError> {
        if self.depth >= MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        self.depth += 1;
        let node = self.expression(&parsed.expr);
        self.depth -= 1;
        node
    }

    fn nodes(&mut self, parsed: &'a [IdedExpr]) -> Result<Vec<Node>, ExpressionError> {
        parsed.iter().map(|one| self.node(one)).collect()
    }

    fn boxed(&mut self, parsed: &'a IdedExpr) -> Result<Box<Node>, ExpressionError> {
        self.node(parsed).map(Box::new)
    }

    fn expression(&mut self, parsed: &'a Expr) -> Result<Node, ExpressionError> {
        Ok(match parsed {
            Expr::Unspecified => return Err(ExpressionError::Unsupported("empty expressions")),
            Expr::Literal(literal) => constant(literal)?,
            Expr::Ident(name) => self.variable(name)?,
            Expr::Select(select) => {
                let (of, name) = (self.boxed(&select.operand)?, select.field.as_str().into());
                if select.test {
                    Node::HasField { of, name }
                } else {
                    Node::Field { of, name, is_optional: false }
                }
            }
            Expr::List(list) if list.optional_indices.is_empty() => Node::List(self.nodes(&list.elements)?),
            Expr::List(_) => return Err(ExpressionError::Unsupported("optional elements of lists")),
            Expr::Map(_) => return Err(ExpressionError::Unsupported("maps")),
            Expr::Struct(_) => return Err(ExpressionError::Unsupported("messages")),
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(parsed) => Node::ForEach(Box::new(self.for_each(parsed)?)),
        })
    }

    fn variable(&self, name: &str) -> Result<Node, ExpressionError> {
        if let Some(number) = self.loops.iter().rposition(|variable| *variable == name) {
            return Ok(Node::Loop(number));
        }
        let root = ROOTS.iter().find(|root| **root == name);
        root.map(|root| Node::Root(root)).ok_or_else(|| ExpressionError::UnknownVariable(name.to_owned()))
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<Node, ExpressionError> {
        let name = call.func_name.as_str();
        if let (None, [left, right]) = (&call.target, call.args.as_slice()) {
            if let Some(operator) = operator(name) {
                let [left, right] = [self.node(left)?, self.node(right)?];
                return Ok(Node::Operator(operator, Box::new([left, right])));
            }
            let is_optional = matches!(name, operators::OPT_SELECT | operators::OPT_INDEX);
            if is_optional || name == operators::INDEX {
                return self.access(left, right, is_optional);
            }
        }
        if call.target.is_none() {
            match (name, call.args.as_slice()) {
                (operators::LOGICAL_AND, args) => return Ok(Node::And(self.nodes(args)?)),
                (operators::LOGICAL_OR, args) => return Ok(Node::Or(self.nodes(args)?)),
                (operators::LOGICAL_NOT, [of]) => return Ok(Node::Not(self.boxed(of)?)),
                (operators::NEGATE, [of]) => return Ok(Node::Negate(self.boxed(of)?)),
                (operators::CONDITIONAL, [condition, yes, no]) => {
                    let parts = [self.node(condition)?, self.node(yes)?, self.node(no)?];
                    return Ok(Node::Condition(Box::new(parts)));
                }
                _ => {}
            }
        }
        let function = function(name, call.target.is_some(), call.args.len())
            .ok_or_else(|| ExpressionError::UnknownFunction(name.to_owned(), call.args.len()))?;
        let mut args = Vec::new();
        if let Some(target) = &call.target {
            args.push(self.node(target)?);
        }
        args.extend(self.nodes(&call.args)?);
        Ok(Node::Call(function, args))
    }

    /// Reads `of[index]`, `of[?index]` and `of.?name`. In the last, the name is a text.
    fn access(
        &mut self,
        of: &'a IdedExpr,
        index: &'a IdedExpr,
        is_optional: bool,
    ) -> Result<Node, ExpressionError> {
        let of = self.boxed(of)?;
        Ok(match self.node(index)? {
            Node::Text(name) => Node::Field { of, name, is_optional },
            index => Node::Index { of, index: Box::new(index), is_optional },
        })
    }

    /// Reads a macro. The parser has replaced it by a loop with an accumulator.
    fn for_each(&mut self, parsed: &'a ComprehensionExpr) -> Result<ForEach, ExpressionError> {
        let range = self.node(&parsed.iter_range)?;
        self.loops.push(&parsed.iter_var);
        let collected = self.collect(parsed);
        self.loops.pop();
        let (result, condition) = collected?;
        Ok(ForEach { range, result, condition })
    }

    fn collect(&mut self, parsed: &'a ComprehensionExpr) -> Result<(Collect, Option<Node>), ExpressionError> {
        let unsupported = || ExpressionError::Unsupported("macros with other arguments");
        let Expr::Call(step) = &parsed.loop_step.expr else { return Err(unsupported()) };
        let is_list = matches!(parsed.accu_init.expr, Expr::List(_));
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_AND, [_, condition]) => Ok((Collect::All, Some(self.node(condition)?))),
            (operators::LOGICAL_OR, [_, condition]) => Ok((Collect::Exists, Some(self.node(condition)?))),
            (operators::CONDITIONAL, [condition, _, _]) if !is_list => {
                Ok((Collect::ExistsOne, Some(self.node(condition)?)))
            }
            (operators::CONDITIONAL, [condition, append, _]) => {
                let element = appended(append).ok_or_else(unsupported)?;
                let is_same = matches!(&element.expr, Expr::Ident(name) if *name == parsed.iter_var);
                let condition = self.node(condition)?;
                let result = if is_same { Collect::Elements } else { Collect::Mapped(self.node(element)?) };
                Ok((result, Some(condition)))
            }
            _ => {
                let element = appended(&parsed.loop_step).filter(|_| is_list).ok_or_else(unsupported)?;
                Ok((Collect::Mapped(self.node(element)?), None))
            }
        }
    }
}

/// Returns `element` of `accumulator + [element]`.
fn appended(parsed: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(call) = &parsed.expr else { return None };
    match call.args.as_slice() {
        [_, IdedExpr { expr: Expr::List(list), .. }] if call.func_name == operators::ADD => {
            list.elements.first()
        }
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Result<Node, ExpressionError> {
    Ok(match literal {
        LiteralValue::Null => Node::Null,
        LiteralValue::Boolean(boolean) => Node::Boolean(*boolean.inner()),
        LiteralValue::Int(number) => Node::Integer(*number.inner()),
        LiteralValue::Double(number) => Node::Double(*number.inner()),
        LiteralValue::String(text) => Node::Text(text.inner().into()),
        LiteralValue::UInt(_) => return Err(ExpressionError::Unsupported("unsigned numbers")),
        LiteralValue::Bytes(_) => return Err(ExpressionError::Unsupported("bytes")),
    })
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        operators::EQUALS => Operator::Equals,
        operators::NOT_EQUALS => Operator::NotEquals,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::IN => Operator::In,
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        _ => return None,
    })
}

fn function(name: &str, is_method: bool, arguments: usize) -> Option<Function> {
    Some(match (name, is_method, arguments) {
        ("size", false, 1) | ("size", true, 0) => Function::Size,
        ("contains", true, 1) => Function::Contains,
        ("startsWith", true, 1) => Function::StartsWith,
        ("endsWith", true, 1) => Function::EndsWith,
        ("int", false, 1) => Function::ToInteger,
        ("double", false, 1) => Function::ToDouble,
        ("string", false, 1) => Function::ToText,
        ("hasValue", true, 0) => Function::HasValue,
        ("value", true, 0) => Function::OptionalValue,
        ("orValue", true, 1) => Function::OrValue,
        _ => return None,
    })
}
