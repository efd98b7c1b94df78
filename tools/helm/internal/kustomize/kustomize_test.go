package kustomize

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"chandler.dev/tools/helm/internal/bundle"
)

func TestMain(m *testing.M) {
	if err := Isolate(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func filesOf(files map[string]string) []bundle.File {
	var list []bundle.File
	for name, content := range files {
		list = append(list, bundle.File{Path: name, Content: []byte(content)})
	}
	return list
}

const config = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  text: '{{ .Values.a }}'\n"

// text returns all objects as YAML.
func text(t *testing.T, objects []bundle.Object) string {
	t.Helper()
	var all strings.Builder
	for _, object := range objects {
		data, err := object.YAML()
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

func TestBuild(t *testing.T) {
	base := "# the base\n---\n" + config
	cases := map[string]struct {
		files  map[string]string
		folder string
		values map[string]any
		want   []string
		file   string
		line   int
	}{
		"in the root": {
			map[string]string{"kustomization.yaml": "resources: [a.yaml]\nnamePrefix: x-\n", "a.yaml": config},
			"", nil, []string{"name: x-a", "'{{ .Values.a }}'"}, "a.yaml", 1,
		},
		"an overlay": {
			map[string]string{
				"overlays/blue/kustomization.yml": "resources:\n- ../../base\nnamespace: blue\n",
				"base/Kustomization":              "resources: [deep/a.yaml]\n",
				"base/deep/a.yaml":                base,
			},
			"overlays/blue", nil, []string{"namespace: blue"}, "base/deep/a.yaml", 3,
		},
		"a generator": {
			map[string]string{"kustomization.yaml": "configMapGenerator:\n- name: made\n  literals: [a=b]\n"},
			".", nil, []string{"name: made-", "a: b"}, "kustomization.yaml", 0,
		},
		"a component": {
			map[string]string{
				"kustomization.yaml":   "resources: [a.yaml]\ncomponents: [c]\n",
				"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -c\n",
				"a.yaml":               config,
			},
			"", nil, []string{"name: a-c"}, "a.yaml", 1,
		},
		"values": {
			map[string]string{
				"kustomization.yaml": "resources: [d.yaml]\nreplacements:\n- source: {kind: ConfigMap, name: chandler-values, fieldPath: data.size}\n" +
					"  targets:\n  - select: {kind: Deployment}\n    fieldPaths: [spec.replicas]\n",
				"d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 1\n",
			},
			"", map[string]any{"size": 3}, []string{"replicas: 3\n"}, "d.yaml", 1,
		},
		"capital letters": {
			map[string]string{"kustomization.yaml": "Resources: [a.yaml]\nBuildMetadata: []\n", "a.yaml": config},
			"", map[string]any{"size": 3}, []string{"name: a"}, "a.yaml", 1,
		},
		"unrelated remote files": {
			map[string]string{
				"app/kustomization.yaml":   "resources: [a.yaml]\n",
				"app/a.yaml":               config,
				"other/kustomization.yaml": "resources: [https://example.invalid/a.yaml]\n",
			},
			"app", nil, []string{"name: a"}, "app/a.yaml", 1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := Build(filesOf(c.files), c.folder, c.values)
			if err != nil {
				t.Fatal(err)
			}
			got := text(t, objects)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing in\n%s", want, got)
				}
			}
			for _, unwanted := range []string{"config.kubernetes.io", "chandler-values"} {
				if strings.Contains(got, unwanted) {
					t.Errorf("%q is in\n%s", unwanted, got)
				}
			}
			if objects[0].File != c.file || objects[0].Line != c.line {
				t.Errorf("got %s, line %d", objects[0].File, objects[0].Line)
			}
		})
	}
}

func TestBuildFails(t *testing.T) {
	cases := map[string]struct {
		kustomization string
		line          int
		message       string
	}{
		"a URL":                 {"resources:\n- a.yaml\n- https://user:password@example.invalid/a.yaml\n", 3, "resources refers to a remote location"},
		"a repository":          {"resources:\n- github.com/example/repo//folder?ref=v1\n", 2, "remote location"},
		"a repository by ssh":   {"resources: ['git@example.invalid:example/repo.git']\n", 1, "remote location"},
		"a base":                {"bases:\n- ssh://git@example.invalid/repo\n", 2, "bases refers to a remote location"},
		"a component":           {"components: [file:///repo]\n", 1, "remote location"},
		"capital letters":       {"Resources: [HTTPS://example.invalid/a.yaml]\n", 1, "remote location"},
		"an alias":              {"resources: [&a 'https://example.invalid/a.yaml']\ncomponents: [*a]\n", 1, "remote location"},
		"a patch":               {"patches:\n- path: https://example.invalid/p.yaml\n", 2, "patches refers to a remote location"},
		"a schema":              {"openapi:\n  path: https://example.invalid/schema.json\n", 2, "remote location"},
		"a generated file":      {"configMapGenerator:\n- name: a\n  files:\n  - key=https://example.invalid/a\n", 4, "remote location"},
		"a chart":               {"resources: [a.yaml]\nhelmCharts:\n- name: a\n", 2, "helmCharts is not supported"},
		"a merge key":           {"x: &x {}\n<<: *x\n", 2, "merge keys"},
		"a field twice":         {"resources: [a.yaml]\nResources: [a.yaml]\n", 2, "Resources is set twice"},
		"a missing file":        {"resources:\n- a.yaml\n- missing.yaml\n", 3, "missing.yaml, which does not exist"},
		"a file outside":        {"resources: [../../a.yaml]\n", 1, "outside of the Source"},
		"an absolute path":      {"resources: [/etc/passwd]\n", 1, "outside of the Source"},
		"a folder without one":  {"resources: [folder]\n", 0, "the folder app/folder has no kustomization.yaml"},
		"no mapping":            {"- a\n", 1, "not a kustomization"},
		"no YAML":               {"resources: [\n", 0, ""},
		"an unknown field":      {"resourcez: [a.yaml]\n", 0, "resourcez"},
		"a plug-in":             {"resources: [a.yaml]\ngenerators:\n- |\n  apiVersion: example.invalid/v1\n  kind: Made\n  metadata:\n    name: a\n    annotations:\n      config.kubernetes.io/function: |\n        exec: {path: /bin/true}\n", 0, ""},
		"itself":                {"resources: [&a [*a], .]\n", 0, ""},
		"a secret in a message": {"secretGenerator:\n- name: a\n  literals: [secret-word]\n", 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Build(filesOf(map[string]string{
				"app/kustomization.yaml": c.kustomization, "app/a.yaml": config, "app/folder/readme.txt": "text",
			}), "app", nil)
			if err == nil {
				t.Fatal("it did not fail")
			}
			problem, ok := errors.AsType[*bundle.Error](err)
			if !ok || c.line != 0 && problem.Line != c.line || !strings.Contains(problem.Message, c.message) {
				t.Fatalf("got %+v", err)
			}
			for _, secret := range []string{"password", "secret-word"} {
				if strings.Contains(err.Error(), secret) {
					t.Fatalf("it quotes a secret: %v", err)
				}
			}
		})
	}
}

func TestRemote(t *testing.T) {
	for entry, want := range map[string]bool{
		"https://example.invalid/a": true, "http:example": true, "git::https://example.invalid/a": true, "GitHub.com/a/b": true,
		"github.com:a/b": true, "user@example.invalid:a": true, "ssh://example.invalid/a": true, "file:///a": true,
		"a.yaml": false, "../base": false, "./github.com/a": false, "a@b.yaml": true, "folder/a@b.yaml": false,
	} {
		if got := isRemote(entry); got != want {
			t.Errorf("%s: got %v", entry, got)
		}
	}
}

func TestSchemaOfOneBuildDoesNotAffectTheNext(t *testing.T) {
	schema := `{"definitions":{"example":{"properties":{"spec":{"type":"object"}},"x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"ConfigMap"}]}}}`
	custom := map[string]string{"kustomization.yaml": "resources: [a.yaml]\nopenapi: {path: schema.json}\n", "a.yaml": config, "schema.json": schema}
	plain := map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": config}
	want, err := Build(filesOf(plain), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(filesOf(custom), "", nil); err != nil {
		t.Fatal(err)
	}
	got, err := Build(filesOf(plain), "", nil)
	if err != nil || text(t, got) != text(t, want) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestIsolatedProcess(t *testing.T) {
	response, err := (&http.Client{}).Get("https://example.invalid/")
	if !errors.Is(err, errNoNetwork) {
		t.Fatalf("got %v", err)
	}
	if response != nil {
		_ = response.Body.Close()
	}
	if path := os.Getenv("PATH"); path != "" {
		t.Fatalf("programs are found in %s", path)
	}
}

func TestIsKustomization(t *testing.T) {
	files := filesOf(map[string]string{"kustomization.yaml": "", "app/Kustomization": "", "plain/a.yaml": ""})
	var found []string
	for _, folder := range []string{"", ".", "app", "plain", "missing"} {
		if IsKustomization(files, folder) {
			found = append(found, folder)
		}
	}
	if want := []string{"", ".", "app"}; !slices.Equal(found, want) {
		t.Fatalf("got %v, want %v", found, want)
	}
}
