package bundle

import (
	"errors"
	"strings"
	"testing"
)

func file(path, content string) File { return File{Path: path, Content: []byte(content)} }

func config(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
}

func TestParse(t *testing.T) {
	type place struct {
		name string
		file string
		line int
	}
	cases := map[string]struct {
		files []File
		want  []place
	}{
		"one object":           {[]File{file("a.yaml", config("a"))}, []place{{"a", "a.yaml", 1}}},
		"several documents":    {[]File{file("a.yaml", config("a")+"---\n"+config("b"))}, []place{{"a", "a.yaml", 1}, {"b", "a.yaml", 6}}},
		"comments and blanks":  {[]File{file("a.yaml", "# text\n\n---\n# text\n\n"+config("a")+"---\n")}, []place{{"a", "a.yaml", 6}}},
		"on the separator":     {[]File{file("a.yaml", "--- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n")}, []place{{"a", "a.yaml", 1}}},
		"an end marker":        {[]File{file("a.yaml", config("a")+"...\n"+config("b"))}, []place{{"a", "a.yaml", 1}, {"b", "a.yaml", 6}}},
		"a directive":          {[]File{file("a.yaml", "%YAML 1.1\n---\n"+config("a"))}, []place{{"a", "a.yaml", 3}}},
		"carriage returns":     {[]File{file("a.yaml", strings.ReplaceAll(config("a")+"---\n"+config("b"), "\n", "\r\n"))}, []place{{"a", "a.yaml", 1}, {"b", "a.yaml", 6}}},
		"a byte order mark":    {[]File{file("a.yaml", "\xef\xbb\xbf"+config("a"))}, []place{{"a", "a.yaml", 1}}},
		"JSON":                 {[]File{file("a.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}, []place{{"a", "a.json", 1}}},
		"a list":               {[]File{file("a.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n")}, []place{{"a", "a.yaml", 1}, {"b", "a.yaml", 1}}},
		"several files":        {[]File{file("a.yaml", config("a")), file("b/c.yml", config("c"))}, []place{{"a", "a.yaml", 1}, {"c", "b/c.yml", 1}}},
		"not evaluated":        {[]File{file("a.yaml", config("a")+"data:\n  text: '{{ $labels.instance }}'\n")}, []place{{"a", "a.yaml", 1}}},
		"separators in a text": {[]File{file("a.yaml", config("a")+"data:\n  text: |\n    ---\n    a\n")}, []place{{"a", "a.yaml", 1}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := Parse(c.files)
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) != len(c.want) {
				t.Fatalf("got %d objects, want %v", len(objects), c.want)
			}
			for i, object := range objects {
				if got := (place{object.GetName(), object.File, object.Line}); got != c.want[i] {
					t.Errorf("got %v, want %v", got, c.want[i])
				}
			}
		})
	}
}

func TestParseFails(t *testing.T) {
	cases := map[string]struct {
		files   []File
		file    string
		line    int
		message string
	}{
		"no files":               {nil, "", 0, "there are no objects"},
		"only comments":          {[]File{file("a.yaml", "# text\n")}, "", 0, "there are no objects"},
		"no kind":                {[]File{file("a.yaml", config("a")+"---\n\na: b\n")}, "a.yaml", 7, "no apiVersion or no kind"},
		"no name":                {[]File{file("a.yaml", "apiVersion: v1\nkind: ConfigMap\n")}, "a.yaml", 1, "ConfigMap has no metadata.name"},
		"a name that is no text": {[]File{file("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n")}, "a.yaml", 1, "metadata.name of ConfigMap is true, not text; put it into quotes"},
		"no object":              {[]File{file("a.yaml", "text\n")}, "a.yaml", 1, "not a Kubernetes object"},
		"a list of texts":        {[]File{file("a.yaml", "apiVersion: v1\nkind: List\nitems: [a]\n")}, "a.yaml", 1, "an item of the list"},
		"a field twice":          {[]File{file("a.yaml", config("a")+"---\n"+config("b")+"kind: Secret\n")}, "a.yaml", 10, "already set in map"},
		"an object twice":        {[]File{file("a.yaml", config("a")), file("b.yaml", config("b")+"---\n"+config("a"))}, "b.yaml", 6, "already defined in a.yaml, line 1"},
		"a kustomization":        {[]File{file("a/kustomization.yaml", "resources: []\n")}, "a/kustomization.yaml", 0, "use the path of its folder"},
		"an unknown annotation":  {[]File{file("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {chandler.dev/replace: Always}\n")}, "a.yaml", 1, "must be WhenImmutable"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.files)
			problem, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if problem.File != c.file || problem.Line != c.line || !strings.Contains(problem.Message, c.message) {
				t.Fatalf("got %+v", problem)
			}
		})
	}
}

func TestSyntaxErrorsNameTheFileAndQuoteNothing(t *testing.T) {
	_, err := Parse([]File{file("a.yaml", config("a")+"---\nkind: ConfigMap\ndata: [secret-word\n")})
	problem, ok := errors.AsType[*Error](err)
	if !ok || problem.File != "a.yaml" || problem.Line < 6 || strings.Contains(err.Error(), "secret-word") {
		t.Fatalf("got %v", err)
	}
}

func TestIsManifest(t *testing.T) {
	for name, want := range map[string]bool{
		"a.yaml": true, "a/b.yml": true, "a.json": true, "README.md": false, "yaml": false,
		".a.yaml": false, ".github/workflows/ci.yaml": false, "a.yaml.bak": false,
	} {
		if got := IsManifest(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestFindLine(t *testing.T) {
	content := []byte("---\n" + config("a") + "---\n" + config("b") + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c}\n")
	for name, c := range map[string]struct {
		kind, name string
		want       int
	}{
		"the first":     {"ConfigMap", "a", 2},
		"the second":    {"ConfigMap", "prefix-b-suffix", 7},
		"a new name":    {"ConfigMap", "x", 2},
		"the only kind": {"Secret", "x", 12},
		"none":          {"Service", "a", 0},
	} {
		if got := FindLine(content, c.kind, c.name); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
