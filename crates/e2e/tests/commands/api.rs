//! What the API server makes of the kinds: which objects it takes, what it fills in, what may change.

mod changes;
mod defaults;
mod extensions;
mod grants;
mod inherited;
mod objects;
mod parameters;
mod server;
mod validation;
