//! What one tenant does affects no other tenant, not the manager, and not the platform.

mod tool_processes;
