//! What an expression consists of.

/// A part of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Box<str>),
    List(Vec<Node>),
    /// A field of the object.
    Root(&'static str),
    /// The variable of a loop, counted from the outermost loop.
    Loop(usize),
    Field {
        of: Box<Node>,
        name: Box<str>,
        is_optional: bool,
    },
    /// `has(of.name)`
    HasField {
        of: Box<Node>,
        name: Box<str>,
    },
    Index {
        of: Box<Node>,
        index: Box<Node>,
        is_optional: bool,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Condition(Box<[Node; 3]>),
    Operator(Operator, Box<[Node; 2]>),
    Call(Function, Vec<Node>),
    ForEach(Box<ForEach>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    NotEquals,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    ToInteger,
    ToDouble,
    ToText,
    HasValue,
    OptionalValue,
    OrValue,
}

/// A macro that evaluates an expression for each element of a list, or each key of a map.
#[derive(Clone, Debug)]
pub struct ForEach {
    pub range: Node,
    pub result: Collect,
    /// Which elements count. `None` means all.
    pub condition: Option<Node>,
}

/// The result of a [`ForEach`].
#[derive(Clone, Debug)]
pub enum Collect {
    All,
    Exists,
    ExistsOne,
    /// A list of the elements that count.
    Elements,
    /// A list of this, for each element that counts.
    Mapped(Node),
}
