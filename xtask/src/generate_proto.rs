//! Rust and Go code of the contracts in `proto/`, without protoc: protox compiles, the generators are crates and
//! tools pinned in `tools/helm/go.mod`.

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

const CONTRACTS: [&str; 2] = ["chandler/tool/v1/tool.proto", "chandler/template/v1/template.proto"];
const GO_GENERATORS: [&str; 2] = ["protoc-gen-go", "protoc-gen-go-grpc"];

/// Writes the generated code below `root`.
pub fn run(root: &Path) -> Result<()> {
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

fn rust(root: &Path, descriptors: FileDescriptorSet) -> Result<()> {
    let out = root.join("crates/tool/src/generated");
    std::fs::create_dir_all(&out)?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(true)
        .out_dir(out)
        .compile_fds(descriptors)
        .context("generating Rust code of proto/")
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
        let path = module.join(file.name());
        std::fs::create_dir_all(path.parent().context("a generated file has a folder")?)?;
        std::fs::write(&path, file.content())?;
    }
    Ok(())
}
