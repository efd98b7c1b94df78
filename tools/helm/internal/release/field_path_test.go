package release

import (
	"encoding/json"
	"reflect"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const pathObject = `{
	"metadata": {"annotations": {"example.com/a.b": "x"}, "finalizers": ["example.com/one", "two"]},
	"data": {"app.conf": "x", "app": "y"},
	"spec": {
		"replicas": 2,
		"containers": [
			{"name": "app", "image": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
			{"name": "side]car\"", "image": "b"}
		],
		"numbers": [1, 2.5, true, null],
		"only": {"one": {"two": 2}},
		"list": [{"name": "x", "value": 1}]
	}
}`

func TestRemoveField(t *testing.T) {
	cases := map[string]struct {
		path  string
		found bool
		check string
		want  string
	}{
		"field":              {`.spec.replicas`, true, `.spec.replicas`, ``},
		"name with dots":     {`.data.app.conf`, true, `.data`, `{"app":"y"}`},
		"shorter name":       {`.data.app`, true, `.data`, `{"app.conf":"x"}`},
		"annotation":         {`.metadata.annotations.example.com/a.b`, true, `.metadata`, `{"finalizers":["example.com/one","two"]}`},
		"key":                {`.spec.containers[name="app"].image`, true, `.spec.containers[name="app"]`, `{"name":"app","ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}]}`},
		"quoted key":         {`.spec.containers[name="side]car\""].image`, true, `.spec.containers[name="side]car\""]`, `{"name":"side]car\""}`},
		"default of a key":   {`.spec.containers[name="app"].ports[containerPort=80,protocol="TCP"]`, true, `.spec.containers[name="app"].ports`, `[{"containerPort":80,"protocol":"UDP"}]`},
		"exact keys":         {`.spec.containers[name="app"].ports[containerPort=80,protocol="UDP"]`, true, `.spec.containers[name="app"].ports`, `[{"containerPort":80}]`},
		"item":               {`.spec.containers[name="app"]`, true, `.spec.containers`, `[{"image":"b","name":"side]car\""}]`},
		"value":              {`.metadata.finalizers[="two"]`, true, `.metadata.finalizers`, `["example.com/one"]`},
		"number":             {`.spec.numbers[=1]`, true, `.spec.numbers`, `[2.5,true,null]`},
		"float":              {`.spec.numbers[=2.5]`, true, `.spec.numbers`, `[1,true,null]`},
		"boolean":            {`.spec.numbers[=true]`, true, `.spec.numbers`, `[1,2.5,null]`},
		"null":               {`.spec.numbers[=null]`, true, `.spec.numbers`, `[1,2.5,true]`},
		"index":              {`.spec.numbers[2]`, true, `.spec.numbers`, `[1,2.5,null]`},
		"empty parents":      {`.spec.only.one.two`, true, `.spec.only`, ``},
		"keys stay":          {`.spec.list[name="x"].value`, true, `.spec.list`, `[{"name":"x"}]`},
		"unknown field":      {`.spec.other`, false, ``, ``},
		"part of a name":     {`.spec.repl`, false, ``, ``},
		"field of a scalar":  {`.spec.replicas.x`, false, ``, ``},
		"unknown item":       {`.spec.containers[name="other"].image`, false, ``, ``},
		"unknown value":      {`.metadata.finalizers[="three"]`, false, ``, ``},
		"index out of range": {`.spec.numbers[4]`, false, ``, ``},
		"name of a list":     {`.spec.containers.name`, false, ``, ``},
		"open bracket":       {`.spec.containers[name="app"`, false, ``, ``},
		"no value":           {`.spec.containers[name]`, false, ``, ``},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object := parseObject(t, pathObject)
			path, found := findPath(object, c.path)
			if found != c.found {
				t.Fatalf("found is %v", found)
			}
			if !found {
				return
			}
			if path.String() != c.path {
				t.Fatalf("got the path %q", path)
			}
			left := removeField(object, path)
			place, found := findPath(left, c.check)
			if !found {
				if c.want != "" {
					t.Fatalf("%s does not exist", c.check)
				}
				return
			}
			for _, element := range place {
				switch inner := left.(type) {
				case map[string]any:
					left = inner[*element.FieldName]
				case []any:
					left = inner[findItem(inner, element)]
				}
			}
			got, err := json.Marshal(left)
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, want %s (%v)", got, c.want, err)
			}
		})
	}
}

func TestNothingIsLeft(t *testing.T) {
	object := parseObject(t, `{"data": {"a": "x"}}`)
	path, _ := findPath(object, ".data.a")
	if left := removeField(object, path); left != nil {
		t.Fatalf("got %v", left)
	}
	object = parseObject(t, pathObject)
	before := parseObject(t, pathObject)
	if left := removeField(object, nil); left != nil || !reflect.DeepEqual(object, before) {
		t.Fatalf("got %v", left)
	}
}

func parseObject(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}
