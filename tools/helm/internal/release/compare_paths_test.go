package release

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// readObject returns an object. In the given JSON, ' stands for ".
func readObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	text = strings.ReplaceAll(text, "'", `"`)
	if !strings.Contains(text, `"kind"`) {
		text = `{"apiVersion":"v1","kind":"Thing",` + text[1:]
	}
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

func TestDifferences(t *testing.T) {
	cases := map[string]struct {
		live, wanted string
		ignored      []string
		want         []string
	}{
		"equal":            {"{'spec':{'a':1,'b':[1,2]}}", "{'spec':{'a':1,'b':[1,2]}}", nil, nil},
		"changed":          {"{'spec':{'a':1}}", "{'spec':{'a':2}}", nil, []string{"/spec/a"}},
		"removed by hand":  {"{'metadata':{'labels':{'a':'1'}}}", "{'metadata':{'labels':{'a':'1','b/c~d':'2'}}}", nil, []string{"/metadata/labels/b~1c~0d"}},
		"would be removed": {"{'data':{'a':'1','b':'2'}}", "{'data':{'a':'1'}}", nil, []string{"/data/b"}},
		"other type":       {"{'spec':{'a':{'b':1}}}", "{'spec':{'a':[1]}}", nil, []string{"/spec/a"}},
		"1 and 1.0":        {"{'spec':{'a':1}}", "{'spec':{'a':1.0}}", nil, nil},
		"set by the API server": {
			"{'metadata':{'resourceVersion':'1','generation':1,'uid':'a','managedFields':[],'creationTimestamp':'x'},'status':{'a':1}}",
			"{'metadata':{'resourceVersion':'2','generation':2},'status':{'a':2}}", nil, nil,
		},
		"item by name": {
			"{'c':[{'name':'proxy','image':'p'},{'name':'app','image':'old'}]}",
			"{'c':[{'name':'app','image':'new'},{'name':'proxy','image':'p'}]}", nil, []string{"/c/1/image"},
		},
		"order of named items": {
			"{'c':[{'name':'a'},{'name':'b'}]}", "{'c':[{'name':'b'},{'name':'a'}]}", nil, []string{"/c"},
		},
		"missing named item": {"{'c':[{'name':'a'}]}", "{'c':[{'name':'b'},{'name':'a'}]}", nil, []string{"/c/0"}},
		"length of a list":   {"{'c':[1,2]}", "{'c':[1]}", nil, []string{"/c"}},
		"item by index":      {"{'c':[1,2]}", "{'c':[1,3]}", nil, []string{"/c/1"}},
		"ignored":            {"{'spec':{'a':1}}", "{'spec':{'a':2}}", []string{"/spec/a"}, nil},
		"below an ignored":   {"{'spec':{'a':1}}", "{'spec':{'a':2,'b':3}}", []string{"/spec"}, nil},
		"not the ignored": {
			"{'spec':{'ab':1}}", "{'spec':{'ab':2}}", []string{"/spec/a", "/spec/ab/c", "/spe"}, []string{"/spec/ab"},
		},
		"ignored item that would be removed": {
			"{'c':[{'name':'a'},{'name':'b'}]}", "{'c':[{'name':'a'}]}", []string{"/c/1"}, nil,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live, wanted := readObject(t, c.live), readObject(t, c.wanted)
			exempt, err := exemptPaths(live, wanted, c.ignored)
			if err != nil {
				t.Fatal(err)
			}
			got := differences(live, wanted, exempt, c.ignored)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDifferencesAreLimited(t *testing.T) {
	live, wanted := readObject(t, "{'data':{}}"), readObject(t, "{'data':{}}")
	for i := range 50 {
		wanted.Object["data"].(map[string]any)[strings.Repeat("a", i+1)] = "secret" //nolint:forcetypeassert // set above
	}
	got := differences(live, wanted, nil, nil)
	if len(got) != maxPaths || strings.Contains(strings.Join(got, ""), "secret") {
		t.Errorf("got %q", got)
	}
}

const scaled = `{'apiVersion':'apps/v1','kind':'Deployment','metadata':{'name':'web','managedFields':[
	{'manager':'helm','operation':'Apply','fieldsType':'FieldsV1','fieldsV1':{'f:spec':{'f:paused':{}}}},
	{'manager':'kube-controller-manager','operation':'Update','subresource':'scale','fieldsType':'FieldsV1','fieldsV1':{'f:spec':{'f:replicas':{}}}},
	{'manager':'kube-controller-manager','operation':'Update','subresource':'status','fieldsType':'FieldsV1','fieldsV1':{'f:status':{'f:replicas':{}}}}
	]},'spec':{'replicas':5,'paused':true,'template':{'metadata':{'annotations':{'a':'live'}},
	'spec':{'containers':[{'name':'proxy','image':'p'},{'name':'app','image':'live'}]}}}}`

func TestExemptFieldsAreAppliedAsTheyAre(t *testing.T) {
	const recorded = `{'apiVersion':'apps/v1','kind':'Deployment','metadata':{'name':'web'},
		'spec':{'replicas':1,'paused':false,'template':{'metadata':{'annotations':{'a':'recorded','b':'recorded'}},
		'spec':{'containers':[{'name':'app','image':'recorded'}]}}}}`
	cases := map[string]struct {
		ignored []string
		want    string
	}{
		"scale": {nil, `{'replicas':5,'paused':false,'template':{'metadata':{'annotations':{'a':'recorded','b':'recorded'}},
			'spec':{'containers':[{'name':'app','image':'recorded'}]}}}`},
		"list item": {[]string{"/spec/template/spec/containers/1/image"}, `{'replicas':5,'paused':false,
			'template':{'metadata':{'annotations':{'a':'recorded','b':'recorded'}},'spec':{'containers':[{'name':'app','image':'live'}]}}}`},
		"map": {[]string{"/spec/template/metadata/annotations"}, `{'replicas':5,'paused':false,
			'template':{'metadata':{'annotations':{'a':'live'}},'spec':{'containers':[{'name':'app','image':'recorded'}]}}}`},
		"not on the cluster": {[]string{"/spec/template/metadata/annotations/b"}, `{'replicas':5,'paused':false,
			'template':{'metadata':{'annotations':{'a':'recorded'}},'spec':{'containers':[{'name':'app','image':'recorded'}]}}}`},
		"not recorded": {[]string{"/spec/template/spec/containers/0/image", "/spec/other", "/spec/template/spec/containers/7"},
			`{'replicas':5,'paused':false,'template':{'metadata':{'annotations':{'a':'recorded','b':'recorded'}},
			'spec':{'containers':[{'name':'app','image':'recorded'}]}}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live, body := readObject(t, scaled), readObject(t, recorded)
			exempt, err := exemptPaths(live, body, c.ignored)
			if err != nil {
				t.Fatal(err)
			}
			keepLive(body.Object, live.Object, exempt)
			var want any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(c.want, "'", `"`)), &want); err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(body.Object["spec"])
			var spec any
			if err := json.Unmarshal(got, &spec); err != nil || !reflect.DeepEqual(spec, want) {
				t.Errorf("got %s, want %v", got, want)
			}
		})
	}
}

func TestPinLive(t *testing.T) {
	live := readObject(t, "{'spec':{'selector':{'a':'1','b':'2'},'replicas':5}}")
	body := readObject(t, "{'spec':{'selector':{'a':'1'}}}")
	exempt, err := exemptPaths(live, body, []string{"/spec/selector/b", "/spec/replicas"})
	if err != nil {
		t.Fatal(err)
	}
	kept := readObject(t, "{'spec':{'selector':{'a':'1','b':'2'},'replicas':5}}")
	if pinLive(body.Object, kept.Object, live.Object, exempt) {
		t.Error("nothing changes, so nothing has to be pinned")
	}
	if !pinLive(body.Object, readObject(t, "{'spec':{'selector':{'a':'1'},'replicas':5}}").Object, live.Object, exempt) {
		t.Error("the selector is applied as a whole, so its other key has to be pinned")
	}
	if want := readObject(t, "{'spec':{'selector':{'a':'1','b':'2'}}}"); !reflect.DeepEqual(body, want) {
		t.Errorf("got %v, want %v", body, want)
	}
}

func TestPointersAreChecked(t *testing.T) {
	for pointer, valid := range map[string]bool{"/spec": true, "/spec/replicas": true, "": false, "/": false, ".spec.replicas": false} {
		err := checkPointers([]*toolv1.IgnoreRule{{Paths: []string{pointer}}})
		if (err == nil) != valid {
			t.Errorf("%q: got %v", pointer, err)
		}
	}
}
