package values

import (
	"encoding/json"
	"strings"
	"testing"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func text(s string) *toolv1.Values {
	return &toolv1.Values{Content: &toolv1.Values_Text{Text: s}}
}

func jsonLayer(s string) *toolv1.Values {
	return &toolv1.Values{Content: &toolv1.Values_Json{Json: []byte(s)}}
}

func TestCanonical(t *testing.T) {
	cases := map[string]struct {
		layers []*toolv1.Values
		want   string
	}{
		"no layers":                  {nil, `{}`},
		"empty text":                 {[]*toolv1.Values{text("")}, `{}`},
		"only a comment":             {[]*toolv1.Values{text("# nothing\n")}, `{}`},
		"keys sorted":                {[]*toolv1.Values{text("b: 1\na: {d: 1, c: 2}\n")}, `{"a":{"c":2,"d":1},"b":1}`},
		"JSON layer":                 {[]*toolv1.Values{jsonLayer(`{"b": 1, "a": "x"}`)}, `{"a":"x","b":1}`},
		"later layers override":      {[]*toolv1.Values{text("a: 1\nb: 1"), text("a: 2")}, `{"a":2,"b":1}`},
		"maps merge, lists replace":  {[]*toolv1.Values{text("m: {a: 1}\nl: [1, 2]"), text("m: {b: 2}\nl: [3]")}, `{"l":[3],"m":{"a":1,"b":2}}`},
		"null overrides a value":     {[]*toolv1.Values{text("a: 1"), text("a: null")}, `{"a":null}`},
		"yaml 1.1 booleans":          {[]*toolv1.Values{text("a: on\nb: off\nc: 'on'\nd: yes")}, `{"a":true,"b":false,"c":"on","d":true}`},
		"octal and octal-looking":    {[]*toolv1.Values{text("a: 0644\nb: '0644'\nc: 0o644")}, `{"a":420,"b":"0644","c":420}`},
		"integers stay integers":     {[]*toolv1.Values{text("a: 1\nb: 9007199254740992\nc: -5")}, `{"a":1,"b":9007199254740992,"c":-5}`},
		"whole floats as in Helm":    {[]*toolv1.Values{text("a: 1.0\nb: 1.5\nc: 1e3")}, `{"a":1,"b":1.5,"c":1000}`},
		"no HTML escapes":            {[]*toolv1.Values{text("a: '<b>&'")}, `{"a":"<b>&"}`},
		"several documents merge":    {[]*toolv1.Values{text("a: 1\n---\nb: 2\n")}, `{"a":1,"b":2}`},
		"number keys become strings": {[]*toolv1.Values{text("1: a\n")}, `{"1":"a"}`},
		"dates stay text":            {[]*toolv1.Values{text("d: 2026-11-15")}, `{"d":"2026-11-15"}`},
		"anchors are resolved":       {[]*toolv1.Values{text("a: &x {k: 1}\nb: *x")}, `{"a":{"k":1},"b":{"k":1}}`},
		"an empty value is null":     {[]*toolv1.Values{text("a:\n")}, `{"a":null}`},
		"large integers as in Helm":  {[]*toolv1.Values{text("a: 12345678901234567")}, `{"a":12345678901234568}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			merged, err := Merge(c.layers)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Canonical(merged)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Helm stores values as JSON in the release. The digest of the values must be the same after reading them back.
func TestDigestIsStableAcrossStorage(t *testing.T) {
	merged, err := Merge([]*toolv1.Values{text("a: 12345678901234567\nb: 0.1\nc: {d: [1, null, 1e30]}")})
	if err != nil {
		t.Fatal(err)
	}
	before, err := Canonical(merged)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(before, &back); err != nil {
		t.Fatal(err)
	}
	after, err := Canonical(back)
	if err != nil {
		t.Fatal(err)
	}
	if Digest(before) != Digest(after) {
		t.Fatalf("before %s\nafter  %s", before, after)
	}
}

func TestInvalidValues(t *testing.T) {
	cases := map[string]struct {
		layer *toolv1.Values
		want  string
	}{
		"bad yaml":      {text("a: 1\nb: : 2\n"), "line 2"},
		"not a map":     {text("- a\n- b\n"), "cannot unmarshal array"},
		"bad json":      {jsonLayer("{\"a\": 1,\n}"), "line 2"},
		"json, no map":  {jsonLayer("[1]"), "cannot unmarshal array"},
		"tab in indent": {text("a:\n\tb: 1\n"), "line 2"},
		"an anchor":     {text("a: *secret"), "unknown anchor referenced"},
		"a null key":    {text("~: secret"), "unsupported map key of type"},
		"a map as key":  {text("{a: secret}: b"), "invalid map key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Merge([]*toolv1.Values{c.layer})
			got := failure.Proto(err)
			if got.GetCategory() != toolv1.FailureCategory_FAILURE_CATEGORY_INVALID_VALUES {
				t.Fatalf("category %v of %v", got.GetCategory(), err)
			}
			if !strings.Contains(got.GetMessage(), c.want) {
				t.Fatalf("message %q does not contain %q", got.GetMessage(), c.want)
			}
			if strings.Contains(got.GetMessage(), "secret") {
				t.Fatalf("message %q contains a value", got.GetMessage())
			}
		})
	}
}
