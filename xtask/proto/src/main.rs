//! Generates the Rust and Go code of the contracts in `proto/` without protoc: protox compiles them, the generators are
//! crates and tools pinned in `tools/helm/go.mod`. A package of its own, because no other command needs these crates.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use prost::Message;
use prost_types::{
    FileDescriptorSet,
    compiler::{CodeGeneratorRequest, CodeGeneratorResponse},
};

const TOOL: &str = "chandler/tool/v1/tool.proto";
const TEMPLATE: &str = "chandler/template/v1/template.proto";
const CONTRACTS: [&str; 2] = [TOOL, TEMPLATE];
const GO_GENERATORS: [&str; 2] = ["protoc-gen-go", "protoc-gen-go-grpc"];

fn main() -> Result<()> {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let descriptors = protox::Compiler::new([root.join("proto")])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(CONTRACTS)?
        .file_descriptor_set();
    rust(root, descriptors.clone())?;
    for generator in GO_GENERATORS {
        go(root, generator, &descriptors)?;
    }
    Ok(())
}

fn rust(root: &Path, mut descriptors: FileDescriptorSet) -> Result<()> {
    let client = tonic_prost_build::configure().build_server(false);
    generate(client, descriptors.clone(), &root.join("crates/tool/src/generated"))?;
    // The package tool of the tests serves the contract; nothing else in Rust does.
    descriptors.file.retain(|file| file.name() != TEMPLATE);
    let server = tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".chandler.tool.v1", "::chandler_tool::generated::tool");
    generate(server, descriptors, &root.join("crates/e2e/src/bin/manifest-tool/generated"))
}

fn generate(builder: tonic_prost_build::Builder, descriptors: FileDescriptorSet, out: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    builder
        .build_transport(true)
        .out_dir(&folder)
        .compile_fds(descriptors)
        .context("generating Rust code of proto/")?;
    for entry in std::fs::read_dir(&folder)? {
        let entry = entry?;
        write(&out.join(entry.file_name()), &std::fs::read(entry.path())?)?;
    }
    Ok(())
}

/// Leaves an equal file unchanged: a newer one would make cargo compile everything that depends on it.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|existing| existing == content) {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().context("a generated file has a folder")?)?;
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

fn go(root: &Path, generator: &str, descriptors: &FileDescriptorSet) -> Result<()> {
    let module = root.join("tools/helm");
    let request = CodeGeneratorRequest {
        file_to_generate: CONTRACTS.map(String::from).to_vec(),
        parameter: Some("module=chandler.dev/tools/helm".to_owned()),
        proto_file: descriptors.file.clone(),
        ..CodeGeneratorRequest::default()
    };
    let mut child = Command::new("go")
        .args(["tool", generator])
        .current_dir(&module)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting go: is Go installed and on the PATH?")?;
    child.stdin.take().context("stdin of the generator")?.write_all(&request.encode_to_vec())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("`go tool {generator}` failed with {}", output.status);
    }
    let response = CodeGeneratorResponse::decode(output.stdout.as_slice())?;
    if let Some(error) = response.error {
        bail!("`go tool {generator}`: {error}");
    }
    for file in response.file {
        write(&module.join(file.name()), file.content().as_bytes())?;
    }
    Ok(())
}
