use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::*;

/// What a mirror answers to a request.
#[derive(Clone)]
enum Answer {
    File(Vec<u8>),
    /// Half of a file.
    Truncated(Vec<u8>),
    /// The connection stays open, and nothing comes.
    Silence,
}

/// A server that has the files of publishers. It answers everything else with 404.
struct Mirror {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Mirror {
    fn start(answers: BTreeMap<String, Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = requests.clone();
        thread::spawn(move || {
            // Open connections of silent answers.
            let mut open = Vec::new();
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let path = read_path(&mut connection);
                seen.lock().unwrap().push(path.clone());
                match answers.get(&path) {
                    Some(Answer::File(bytes)) => respond(&mut connection, bytes.len(), bytes),
                    Some(Answer::Truncated(bytes)) => {
                        respond(&mut connection, bytes.len(), &bytes[..bytes.len() / 2]);
                    }
                    Some(Answer::Silence) => open.push(connection),
                    None => {
                        connection.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
                    }
                }
            }
        });
        Self { url, requests }
    }
}

fn read_path(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap() > 0 {
        request.push(byte[0]);
    }
    String::from_utf8(request).unwrap().split(' ').nth(1).unwrap_or_default().to_owned()
}

fn respond(connection: &mut TcpStream, length: usize, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // curl may have given up.
    let _ = connection.write_all(&[head.as_bytes(), body].concat());
}

/// Collects the lines that say why a program is built.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl ProgressReporter for Notes {
    fn begin(&self, _: &str, _: Option<(usize, usize)>) {}
    fn advance(&self, _: &str) {}
    fn finish(&self, _: &str) {}
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Notes {
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join("\n")
    }
}

const KUBERNETES: KubernetesVersion = KubernetesVersion::V1_34;

fn program(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho '{version}'\n").into_bytes()
}

fn sum(bytes: &[u8]) -> String {
    crate::digest::hex(&Sha256::digest(bytes))
}

fn published(binary: Binary) -> Published {
    Published::of(binary, KUBERNETES).unwrap()
}

/// Returns the answers of a mirror that has a program.
fn answers(binary: Binary, checksum: &str, file: Answer) -> BTreeMap<String, Answer> {
    let Published { host, path, checksums, .. } = published(binary);
    let checksum = Answer::File(checksum.as_bytes().to_vec());
    BTreeMap::from([(format!("/{host}{checksums}"), checksum), (format!("/{host}{path}"), file)])
}

fn downloads<'p>(mirror: &Mirror, directory: &Path, progress: &'p Notes) -> Downloads<'p> {
    let directory = directory.join("unfinished");
    Downloads { progress, directory, mirror: Some(mirror.url.clone()), silent: HashSet::new() }
}

#[tokio::test]
async fn only_the_expected_program_is_used() {
    let scheduler = Binary::KubeScheduler;
    let good = program(&published(scheduler).version);
    let other = program("Kubernetes v1.33.0");
    let cut = Answer::Truncated(good.clone());
    let file = |bytes: &Vec<u8>| Answer::File(bytes.clone());
    let rows = [
        ("good", answers(scheduler, &sum(&good), file(&good)), ""),
        ("wrong checksum", answers(scheduler, &sum(&other), file(&good)), "but its publisher names"),
        ("no checksum", answers(scheduler, "<html>", file(&good)), "contains no checksum of kube-scheduler"),
        ("wrong version", answers(scheduler, &sum(&other), file(&other)), "it prints `Kubernetes v1.33.0`"),
        ("truncated", answers(scheduler, &sum(&good), cut), "the download failed"),
        ("404", BTreeMap::new(), "404"),
    ];
    for (row, answers, expected) in rows {
        let (mirror, notes) = (Mirror::start(answers), Notes::default());
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("kube-scheduler");
        let mut downloads = downloads(&mirror, directory.path(), &notes);
        let found = downloads.get(scheduler, KUBERNETES, &target).await;
        let said = notes.take();
        assert_eq!((found, target.is_file()), (expected.is_empty(), expected.is_empty()), "{row}: {said}");
        assert!(said.contains(expected), "{row}: {said}");
        assert!(!directory.path().join("unfinished").exists(), "{row}");
        if found {
            let printed = std::process::Command::new(&target).output().unwrap().stdout;
            assert_eq!(String::from_utf8(printed).unwrap().trim(), published(scheduler).version);
        } else {
            assert!(
                said.starts_with("kube-scheduler is built instead of downloaded from 127.0.0.1:"),
                "{said}"
            );
        }
    }
}

#[tokio::test]
async fn etcd_is_extracted_from_its_archive() {
    let Published { member, version, path, .. } = published(Binary::Etcd);
    for (name, expected) in [(member.as_deref().unwrap(), ""), ("README.md", "it is not in the archive")] {
        let bytes = archive(&[(name, &version)]);
        let list = format!("{}  other.tar.gz\n{}  {}\n", sum(b""), sum(&bytes), file_name(&path));
        let mirror = Mirror::start(answers(Binary::Etcd, &list, Answer::File(bytes)));
        let (notes, directory) = (Notes::default(), tempfile::tempdir().unwrap());
        let target = directory.path().join("etcd");
        let found = downloads(&mirror, directory.path(), &notes).get(Binary::Etcd, KUBERNETES, &target).await;
        let said = notes.take();
        assert_eq!((found, target.is_file()), (expected.is_empty(), expected.is_empty()), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// Returns a compressed tar archive of programs that print these lines.
fn archive(programs: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, line) in programs {
        let bytes = program(line);
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len().try_into().unwrap());
        header.set_mode(0o755);
        tar.append_data(&mut header, name, &*bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[tokio::test]
async fn a_release_is_used_whole_or_not_at_all() {
    let release = Release::of("https://github.com/owner/chandler", "v1.2.3").unwrap();
    for (version, has_list, expected) in
        [("1.2.3", true, ""), ("1.2.4", true, "it prints `chandler-sandbox 1.2.4`"), ("1.2.3", false, "404")]
    {
        let contents = [
            archive(&[("chandler", "chandler 1.2.3"), ("chandler-helm", "")]),
            archive(&[("chandler-sandbox", &format!("chandler-sandbox {version}")), ("kwok", "")]),
        ];
        let mut answers = BTreeMap::new();
        let mut list = String::new();
        for (path, bytes) in release.archives().into_iter().zip(contents) {
            list = format!("{list}{}  {}\n", sum(&bytes), file_name(&path));
            answers.insert(format!("/{GITHUB}{path}"), Answer::File(bytes));
        }
        if has_list {
            let list = Answer::File(list.into_bytes());
            answers.insert(format!("/{GITHUB}{}", release.path("SHA256SUMS")), list);
        }
        let (mirror, notes) = (Mirror::start(answers), Notes::default());
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("v1.2.3");
        let found = downloads(&mirror, directory.path(), &notes).get_release(&release, &target).await;
        let said = notes.take();
        assert_eq!(
            (found, target.join("kwok").is_file()),
            (expected.is_empty(), expected.is_empty()),
            "{said}"
        );
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn a_silent_host_is_asked_once() {
    let Published { host, checksums, .. } = published(Binary::KubeScheduler);
    let mirror = Mirror::start(BTreeMap::from([(format!("/{host}{checksums}"), Answer::Silence)]));
    let (notes, directory) = (Notes::default(), tempfile::tempdir().unwrap());
    let mut downloads = downloads(&mirror, directory.path(), &notes);
    let target = directory.path().join("program");
    for binary in [Binary::KubeScheduler, Binary::KubeApiserver] {
        assert!(!downloads.get(binary, KUBERNETES, &target).await);
    }
    assert_eq!(mirror.requests.lock().unwrap().len(), 1);
    let said = notes.take();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the host cannot be reached"), "{said}");
}

#[tokio::test]
async fn a_program_that_hangs_is_not_used() {
    let started = Instant::now();
    let directory = tempfile::tempdir().unwrap();
    let hangs = directory.path().join("hangs");
    fs::write(&hangs, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&hangs, fs::Permissions::from_mode(0o755)).unwrap();
    tokio::time::pause();
    let failure = check_version(&hangs, &["--version"], "v1").await.unwrap_err();
    assert!(matches!(failure, Failure::Version { found, .. } if found.is_empty()));
    assert!(started.elapsed() < VERSION_LIMIT);
}

#[test]
fn the_login_of_a_mirror_is_not_printed() {
    for (url, host) in [
        ("https://mirror.example/remote", "mirror.example"),
        ("https://user:token@mirror.example:8443", "mirror.example:8443"),
        ("http://user@mirror.example/a@b/", "mirror.example"),
    ] {
        assert_eq!(host_of(url), host);
    }
}

#[test]
fn checksums_are_found_alone_and_in_lists() {
    let (a, b) = (sum(b"a"), sum(b"b"));
    for (text, expected) in [
        (a.clone(), Some(&a)),
        (format!("{a}\n"), Some(&a)),
        (a.to_uppercase(), Some(&a)),
        (format!("{b}  other\n{a}  file\n"), Some(&a)),
        (format!("{a} *file\n"), Some(&a)),
        (format!("{a}  file.sig\n"), None),
        ("0123  file\n".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(find_checksum(&text, "file").as_ref(), expected, "{text}");
    }
}
