//! Chandler's kinds on a real API server: validation, defaults, and updates.

mod caaph_objects;
mod defaults;
mod extensions;
mod fleet;
mod grants;
mod logins;
mod objects;
mod parameters;
mod policies;
mod server;
mod tenancies;
mod tunnel;
mod updates;
mod validation;
