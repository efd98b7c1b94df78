package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// pack writes a chart archive and returns it as a package.
func pack(t *testing.T, files map[string]string) *toolv1.Package {
	t.Helper()
	var data bytes.Buffer
	zipped := gzip.NewWriter(&data)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		header := &tar.Header{Name: "a/" + name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tgz")
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data.Bytes())
	return &toolv1.Package{Path: path, Digest: "sha256:" + hex.EncodeToString(sum[:])}
}

const chartYAML = "apiVersion: v2\nname: a\nversion: 1.2.3\n"

func TestReadsCapabilities(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  bool
	}{
		"no":               {map[string]string{"templates/a.yaml": "a: {{ .Values.a }}"}, false},
		"only a comment":   {map[string]string{"templates/a.yaml": "# Capabilities\n{{/* .Capabilities */}}"}, false},
		"a field":          {map[string]string{"templates/a.yaml": "{{ .Capabilities.KubeVersion }}"}, true},
		"the root":         {map[string]string{"templates/a.yaml": "{{ range .Values.a }}{{ $.Capabilities.KubeVersion }}{{ end }}"}, true},
		"a condition":      {map[string]string{"templates/a.yaml": `{{ if .Capabilities.APIVersions.Has "a/v1" }}{{ end }}`}, true},
		"an else branch":   {map[string]string{"templates/a.yaml": `{{ if .Values.a }}{{ else }}{{ .Capabilities }}{{ end }}`}, true},
		"a helper":         {map[string]string{"templates/_h.tpl": `{{ define "x" }}{{ .Capabilities.KubeVersion.Minor }}{{ end }}`}, true},
		"parentheses":      {map[string]string{"templates/a.yaml": "{{ (.Capabilities).KubeVersion }}"}, true},
		"a variable":       {map[string]string{"templates/a.yaml": "{{ $c := .Capabilities }}{{ $c.KubeVersion }}"}, true},
		"by index":         {map[string]string{"templates/a.yaml": `{{ index . "Capabilities" }}`}, true},
		"default values":   {map[string]string{"values.yaml": "a: '{{ .Capabilities.KubeVersion }}'"}, true},
		"Helm's functions": {map[string]string{"templates/a.yaml": `{{ include "x" . | nindent 2 }}{{ "Capabilities of" }}`}, false},
		"a subchart": {map[string]string{
			"charts/b/Chart.yaml":       "apiVersion: v2\nname: b\nversion: 1.0.0\n",
			"charts/b/templates/a.yaml": "{{ .Capabilities.KubeVersion }}",
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.files["Chart.yaml"] = chartYAML
			loaded, err := NewStore().Load(pack(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			if loaded.ReadsCapabilities != c.want {
				t.Fatalf("got %v", loaded.ReadsCapabilities)
			}
		})
	}
}

func TestInfo(t *testing.T) {
	loaded, err := NewStore().Load(pack(t, map[string]string{
		"Chart.yaml":         chartYAML + "appVersion: '7'\nkubeVersion: '>=1.30.0-0'\ndependencies: [{name: b, version: 1.x, condition: b.enabled}]\n",
		"values.yaml":        "# the answer\na: 42\n",
		"values.schema.json": "{}",
		"README.md":          "# A",
		"crds/w.yaml":        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ws.example.dev}\n---\nkind: CustomResourceDefinition\nmetadata: {name: vs.example.dev}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	info := loaded.Info()
	if info.GetName() != "a" || info.GetVersion() != "1.2.3" || info.GetAppVersion() != "7" || info.GetKubernetes() != ">=1.30.0-0" {
		t.Fatalf("got %v", info)
	}
	if info.GetDefaultValues() != "# the answer\na: 42\n" || string(info.GetValuesSchema()) != "{}" || info.GetReadme() != "# A" {
		t.Fatalf("got %v", info)
	}
	if strings.Join(info.GetCrds(), " ") != "ws.example.dev vs.example.dev" || info.GetDependencies()[0].GetCondition() != "b.enabled" {
		t.Fatalf("got %v", info)
	}
	if got := failure.Proto(loaded.CheckInstallable()); got.GetCategory() != failure.InvalidPackage || !strings.Contains(got.GetMessage(), "chart a lacks dependencies: found in Chart.yaml, but missing in charts/ directory: b") {
		t.Fatalf("a dependency is missing: %v", got)
	}
}

func TestLoadRejects(t *testing.T) {
	good := pack(t, map[string]string{"Chart.yaml": chartYAML})
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("text"))
	cases := map[string]*toolv1.Package{
		"no digest":      {Path: good.GetPath()},
		"another digest": {Path: good.GetPath(), Digest: "sha256:00"},
		"no file":        {Path: good.GetPath() + "x", Digest: "sha256:00"},
		"no archive":     {Path: text, Digest: "sha256:" + hex.EncodeToString(sum[:])},
		"no chart":       pack(t, map[string]string{"values.yaml": "a: 1"}),
	}
	for name, pkg := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := NewStore().Load(pkg)
			if got := failure.Proto(err).GetCategory(); err == nil || got != failure.InvalidPackage {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestSchemasWithExternalReferencesAreRejected(t *testing.T) {
	cases := map[string]struct {
		schema   string
		external string
	}{
		"a definition":       {`{"$defs": {"a": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}`, ""},
		"a bundled schema":   {`{"$defs": {"a": {"$id": "https://x.example/a"}}, "properties": {"a": {"$ref": "https://x.example/a"}}}`, ""},
		"a known draft":      {`{"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://x.example/s", "properties": {"a": {"$ref": "#"}}}`, ""},
		"a urn":              {`{"properties": {"a": {"$ref": "urn:x:y"}}}`, ""},
		"not a reference":    {`{"properties": {"$ref": {"type": "string"}}, "default": {"$ref": "https://x.example"}}`, ""},
		"not a schema":       {`{"type": 7}`, ""},
		"a server":           {`{"properties": {"a": {"$ref": "https://x.example/a.json"}}}`, "https://x.example/a.json"},
		"a plain server":     {`{"properties": {"a": {"$ref": "http://169.254.169.254/"}}}`, "http://169.254.169.254/"},
		"a file":             {`{"properties": {"a": {"$ref": "file:///etc/passwd"}}}`, "file:///etc/passwd"},
		"a file beside it":   {`{"$ref": "other.json"}`, "file:///other.json"},
		"by another base":    {`{"$id": "https://x.example/s", "properties": {"a": {"$ref": "a.json"}}}`, "https://x.example/a.json"},
		"a dynamic one":      {`{"properties": {"a": {"$dynamicRef": "https://x.example/a#b"}}}`, "https://x.example/a"},
		"a draft of its own": {`{"$schema": "https://x.example/draft"}`, "https://x.example/draft"},
		"deep inside":        {`{"properties": {"a": {"items": {"anyOf": [{"$ref": "https://x.example/a"}]}}}}`, "https://x.example/a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, folder := range []string{"", "charts/b/"} {
				files := map[string]string{"Chart.yaml": chartYAML, folder + "values.schema.json": c.schema}
				if folder != "" {
					files[folder+"Chart.yaml"] = "apiVersion: v2\nname: b\nversion: 1.0.0\n"
				}
				_, err := NewStore().Load(pack(t, files))
				if (err != nil) != (c.external != "") {
					t.Fatalf("got %v", err)
				}
				if err == nil {
					continue
				}
				got := failure.Proto(err)
				if got.GetCategory() != failure.InvalidPackage || !strings.Contains(got.GetMessage(), c.external) {
					t.Fatalf("got %v", err)
				}
			}
		})
	}
}

func TestCloneDoesNotShareState(t *testing.T) {
	store := NewStore()
	pkg := pack(t, map[string]string{
		"Chart.yaml":          chartYAML + "dependencies: [{name: b, version: 1.0.0, condition: b.enabled}]\n",
		"values.yaml":         "b: {enabled: false}\nl: [{x: 1}]\n",
		"charts/b/Chart.yaml": "apiVersion: v2\nname: b\nversion: 1.0.0\n",
	})
	loaded, err := store.Load(pkg)
	if err != nil {
		t.Fatal(err)
	}
	first := loaded.Clone()
	if err := chartutil.ProcessDependencies(first, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	first.Values["l"].([]any)[0].(map[string]any)["x"] = 2
	second := loaded.Clone()
	if len(first.Dependencies()) != 0 || len(second.Dependencies()) != 1 || len(second.Metadata.Dependencies) != 1 {
		t.Fatal("processing one clone changed another")
	}
	if second.Values["l"].([]any)[0].(map[string]any)["x"] != float64(1) {
		t.Fatal("values are shared between clones")
	}
	if err := os.Remove(pkg.GetPath()); err != nil {
		t.Fatal(err)
	}
	if again, err := store.Load(pkg); err != nil || again != loaded {
		t.Fatalf("the chart was not cached: %v", err)
	}
}
