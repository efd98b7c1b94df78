package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// zip returns an archive with these entries.
func zip(t *testing.T, headers []*tar.Header, contents []string) []byte {
	t.Helper()
	var data bytes.Buffer
	zipped := gzip.NewWriter(&data)
	archive := tar.NewWriter(zipped)
	for i, header := range headers {
		header.Mode, header.Size = 0o644, int64(len(contents[i]))
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(contents[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func zipFiles(t *testing.T, files ...File) []byte {
	t.Helper()
	var headers []*tar.Header
	var contents []string
	for _, file := range files {
		headers = append(headers, &tar.Header{Name: file.Path, Typeflag: tar.TypeReg})
		contents = append(contents, string(file.Content))
	}
	return zip(t, headers, contents)
}

// load writes an archive and loads it as a package.
func load(t *testing.T, archive []byte) (*Bundle, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.package")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	return NewStore().Load(&toolv1.Package{Path: path, Digest: "sha256:" + hex.EncodeToString(sum[:])})
}

func TestUnpack(t *testing.T) {
	files, err := Unpack(zipFiles(t, file("./b/c.yml", "c"), file("a.yaml", "a"), file("README.md", "text"), file(".ci.yaml", "x")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		got = append(got, file.Path+"="+string(file.Content))
	}
	if want := []string{"a.yaml=a", "b/c.yml=c"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestInvalidArchives(t *testing.T) {
	link := &tar.Header{Name: "a.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}
	cases := map[string]struct {
		archive []byte
		message string
	}{
		"no archive":   {[]byte("text"), "not a bundle"},
		"empty":        {nil, "not a bundle"},
		"no manifests": {zipFiles(t, file("README.md", "text")), "no manifests"},
		"a link":       {zip(t, []*tar.Header{link}, []string{""}), "neither a file nor a folder"},
		"outside":      {zipFiles(t, file("../a.yaml", "a")), "outside of the bundle"},
		"absolute":     {zipFiles(t, file("/a.yaml", "a")), "outside of the bundle"},
		"twice":        {zipFiles(t, file("a.yaml", "a"), file("a.yaml", "b")), "twice"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.archive)
			if err == nil || !strings.Contains(err.Error(), c.message) {
				t.Fatalf("got %v", err)
			}
			if category := failure.Classify(err).Category; category != failure.InvalidPackage {
				t.Fatalf("got %v", category)
			}
		})
	}
}

func TestInfo(t *testing.T) {
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.invalid}\n"
	loaded, err := load(t, zipFiles(t, file("a.yaml", config("a")), file("crd.yaml", crd)))
	if err != nil {
		t.Fatal(err)
	}
	info := loaded.Info()
	if info.GetName() != "manifests" || !strings.HasPrefix(info.GetVersion(), "0.0.0+") || len(info.GetVersion()) != 18 {
		t.Fatalf("got %s %s", info.GetName(), info.GetVersion())
	}
	if !slices.Equal(info.GetCrds(), []string{"things.example.invalid"}) || info.GetReadsCapabilities() {
		t.Fatalf("got %v", info)
	}
}

func TestOnlyValuesMakeTemplates(t *testing.T) {
	text := config("a") + "data:\n  release: '{{ .Release.Name }}'\n  size: '{{ .Values.size }}'\n"
	loaded, err := load(t, zipFiles(t, file("a.yaml", text)))
	if err != nil {
		t.Fatal(err)
	}
	release := Release{ReleaseOptions: common.ReleaseOptions{Name: "web", Namespace: "apps", Revision: 1, IsInstall: true}}
	for name, c := range map[string]struct {
		values map[string]any
		want   string
	}{
		"no values":    {nil, "release: '{{ .Release.Name }}'"},
		"empty values": {map[string]any{}, "release: '{{ .Release.Name }}'"},
		"values":       {map[string]any{"size": "3"}, "release: web\n  size: \"3\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := loaded.Render(context.Background(), c.values, release)
			if err != nil {
				t.Fatal(err)
			}
			got, err := objects[0].YAML()
			if err != nil || !strings.Contains(string(got), c.want) {
				t.Fatalf("got %s, %v", got, err)
			}
		})
	}
}

func TestRenderFails(t *testing.T) {
	values := map[string]any{"size": "3"}
	cases := map[string]struct {
		text     string
		values   map[string]any
		category toolv1.FailureCategory
		message  string
	}{
		"invalid without values": {"kind: A\n", nil, failure.InvalidPackage, "a.yaml, line 1: "},
		"invalid with values":    {"kind: A\n", values, failure.InvalidValues, "a.yaml"},
		"a template that fails":  {"a: 1\nb: {{ fail \"no size\" }}\n", values, failure.InvalidValues, "a.yaml, line 2: "},
		"a syntax error":         {"a: 1\nb: {{ if }}\n", values, failure.InvalidPackage, "a.yaml, line 2: "},
		"nothing rendered":       {"{{ if false }}a: 1{{ end }}\n", values, failure.InvalidValues, "there are no objects"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			loaded, err := load(t, zipFiles(t, file("a.yaml", c.text)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = loaded.Render(context.Background(), c.values, Release{})
			if err == nil {
				t.Fatal("it did not fail")
			}
			if got := failure.Classify(err); got.Category != c.category || !strings.Contains(got.Message, c.message) {
				t.Fatalf("got %v: %s", got.Category, got.Message)
			}
		})
	}
}

func TestCapabilitiesMatterOnlyWithValues(t *testing.T) {
	loaded, err := load(t, zipFiles(t, file("a.yaml", config("a")+"data: {version: '{{ .Capabilities.KubeVersion }}'}\n")))
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Chart(nil).ReadsCapabilities || !loaded.Chart(map[string]any{"a": 1}).ReadsCapabilities {
		t.Fatal("capabilities are read without values, or not read with values")
	}
}
