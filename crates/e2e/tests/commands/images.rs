//! The images of `cargo xtask image`: they are pushed to a registry, pulled, unpacked and run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use chandler_core::digest::Digest;
use chandler_e2e::{
    oci,
    packaging::xtask,
    programs,
    shell::{Shell, text},
};
use chandler_sandbox::{
    certificates::Authority,
    registry::{CREDENTIALS, Registry},
    testing,
};
use serde_json::{Value, json};

const TAG: &str = "v9.9.9-dev";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Copies the programs under test into a folder, without their symbols, which are most of their size.
async fn stripped_programs(shell: &Shell) -> PathBuf {
    let folder = shell.home.join("programs");
    fs::create_dir(&folder).unwrap();
    for (name, program) in [
        ("chandler", programs::chandler()),
        ("chandler-agent", programs::agent()),
        ("chandler-helm", programs::package_tool()),
    ] {
        let to = folder.join(name);
        shell.expect(&format!("strip -o {to} {program} || cp {program} {to}", to = to.display()), &[]).await;
    }
    folder
}

/// Pushes a layout as `team/NAME` and returns what the program prints. Without a login it must fail.
async fn push(shell: &Shell, registry: &Registry, layout: &Path, name: &str) -> String {
    let push = programs::push();
    let (layout, ca_file) = (layout.display(), registry.ca_file().display().to_string());
    let line = format!("{push} {layout} {}/team/{name}:{TAG} --ca-file {ca_file}", registry.host());
    let anonymous = shell.run(&line, &[], std::time::Duration::from_mins(1)).await;
    assert!(!anonymous.status.success());
    assert!(text(&anonymous.stderr).contains("REGISTRY_USERNAME"), "{}", text(&anonymous.stderr));
    let login = [("REGISTRY_USERNAME", CREDENTIALS.0), ("REGISTRY_PASSWORD", CREDENTIALS.1)];
    shell.expect(&line, &login).await.trim().to_owned()
}

/// An image that was pulled and unpacked.
struct Pulled {
    digest: Digest,
    config: Value,
    root: PathBuf,
}

/// Pulls an image by tag, checks all digests, and unpacks it.
async fn pull(shell: &Shell, registry: &Registry, name: &str) -> Pulled {
    let manifest = oci::pull(registry, &format!("team/{name}/manifests/{TAG}")).await;
    let document: Value = serde_json::from_slice(&manifest).unwrap();
    let blob = |descriptor: &Value| format!("team/{name}/blobs/{}", descriptor["digest"].as_str().unwrap());
    let config = oci::pull(registry, &blob(&document["config"])).await;
    assert_eq!(document["config"]["digest"], Digest::of(&config).to_string());
    let layer = &document["layers"][0];
    assert_eq!(document["layers"].as_array().unwrap().len(), 1);
    let file = shell.home.join(format!("{name}.tar"));
    fs::write(&file, oci::pull(registry, &blob(layer)).await).unwrap();
    assert_eq!(layer["digest"], format!("sha256:{}", sha256(shell, &file).await));
    let root = shell.home.join(format!("{name}-root"));
    unpack(&file, &root);
    fs::remove_file(&file).unwrap();
    let config = serde_json::from_slice(&config).unwrap();
    Pulled { digest: Digest::of(&manifest), config, root }
}

/// Unpacks a layer and checks that nothing in it depends on where and when it was built.
fn unpack(layer: &Path, root: &Path) {
    fs::create_dir(root).unwrap();
    let mut archive = tar::Archive::new(fs::File::open(layer).unwrap());
    let mut paths = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        let header = entry.header();
        assert_eq!(header.mtime().unwrap(), 0, "{}", path.display());
        let is_writable = ["tmp", "var/cache/chandler", "var/lib/chandler-agent"]
            .iter()
            .any(|writable| path == Path::new(writable));
        let owner = if is_writable { 65532 } else { 0 };
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (owner, owner), "{}", path.display());
        assert!(entry.unpack_in(root).unwrap());
        paths.push(path);
    }
    assert!(paths.is_sorted(), "{paths:?}");
}

/// Returns the digest of a large file. The Rust implementation is slow without optimization.
async fn sha256(shell: &Shell, file: &Path) -> String {
    let printed = shell.expect(&format!("sha256sum {}", file.display()), &[]).await;
    printed.split_whitespace().next().unwrap().to_owned()
}

#[tokio::test]
async fn the_images_are_pushed_pulled_unpacked_and_run() {
    let shell = Shell::new("images").await;
    let home = shell.home.clone();
    let authority = Authority::open(&home.join("pki"), "images").unwrap();
    let certificates = home.join("certificates.pem");
    fs::write(&certificates, authority.certificate()).unwrap();
    let folder = stripped_programs(&shell).await;
    let (out, folder) = (home.join("dist"), folder.to_string_lossy().into_owned());
    let arguments = ["image", "--debug", &folder, "--out", &out.to_string_lossy()];
    let labels =
        ["--version", TAG, "--revision", "0123abc", "--certificates", &certificates.to_string_lossy()];
    xtask(&[&arguments[..], &labels].concat()).await;

    let assets = testing::assets().await.unwrap();
    let registry =
        Registry::start_with_authentication(assets, &authority, &home.join("registry")).await.unwrap();
    for name in ["chandler", "chandler-agent"] {
        let pushed = push(&shell, &registry, &out.join("image").join(name), name).await;
        let pulled = pull(&shell, &registry, name).await;
        assert_eq!(pushed, format!("{}/team/{name}:{TAG}@{}", registry.host(), pulled.digest));
        let config = &pulled.config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(config["Entrypoint"], json!([format!("/{name}")]));
        assert_eq!(config["Labels"]["org.opencontainers.image.version"], TAG);
        assert_eq!(config["Labels"]["org.opencontainers.image.revision"], "0123abc");
        check_sbom(&shell, &out, name, &pulled).await;
        let program = pulled.root.join(name);
        let version = shell.expect(&format!("{} --version", program.display()), &[]).await;
        assert_eq!(version.trim(), format!("{name} {VERSION}"));
        if name == "chandler" {
            run_driver(&shell, &pulled.root).await;
            let trusted = fs::read_to_string(pulled.root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
            assert_eq!(trusted, authority.certificate());
        }
    }
    registry.stop().await;
}

/// Runs the driver, which is static in every build, without any file outside of the image and as the image's user, if the test
/// may do that.
async fn run_driver(shell: &Shell, root: &Path) {
    let line = if rustix::process::geteuid().is_root() {
        format!("chroot --userspec=65532:65532 {} /chandler-helm -version", root.display())
    } else {
        format!("{}/chandler-helm -version", root.display())
    };
    assert_eq!(shell.expect(&line, &[]).await.trim(), format!("v{VERSION}"));
}

/// Checks that the SBOM of an image names its digest, and the digests of the programs in it.
async fn check_sbom(shell: &Shell, out: &Path, name: &str, pulled: &Pulled) {
    let path = out.join("sbom").join(format!("{name}-image.cdx.json"));
    let sbom: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let image = &sbom["metadata"]["component"];
    assert_eq!((&image["type"], &image["version"]), (&json!("container"), &json!(TAG)));
    assert_eq!(image["hashes"][0]["content"], pulled.digest.hex());
    let components = sbom["components"].as_array().unwrap();
    let programs = components.iter().filter(|component| component["type"] == "application");
    let mut names = Vec::new();
    for program in programs {
        let name = program["name"].as_str().unwrap();
        assert_eq!(program["hashes"][0]["content"], sha256(shell, &pulled.root.join(name)).await, "{name}");
        names.push(name);
    }
    names.sort_unstable();
    let (expected, crate_or_module): (&[&str], _) = match name {
        "chandler" => (&["chandler", "chandler-helm"], "pkg:golang/helm.sh/helm/v4@"),
        _ => (&["chandler-agent"], "pkg:cargo/rustls@"),
    };
    assert_eq!(names, expected);
    let is_part =
        |component: &Value| component["purl"].as_str().is_some_and(|purl| purl.starts_with(crate_or_module));
    assert!(components.iter().any(is_part), "{crate_or_module} is missing");
}
