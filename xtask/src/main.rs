//! The project's own commands: `cargo xtask --help`.

mod generate_proto;

fn main() -> anyhow::Result<()> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    generate_proto::run(&root)
}
