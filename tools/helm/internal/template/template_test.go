package template

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
)

func render(t *testing.T, request *templatev1.RenderRequest) *templatev1.Output {
	t.Helper()
	response := Render(context.Background(), request)
	if len(response.GetOutputs()) != 1 {
		t.Fatalf("%d outputs", len(response.GetOutputs()))
	}
	return response.GetOutputs()[0]
}

func TestRender(t *testing.T) {
	cases := map[string]struct{ template, data, want string }{
		"a field":             {`name: {{ .Cluster.metadata.name }}`, `{"Cluster":{"metadata":{"name":"blue"}}}`, `name: blue`},
		"sprig":               {`{{ .a | upper | quote }}`, `{"a":"x"}`, `"X"`},
		"integers":            {`{{ .a }} {{ add .a 1 }} {{ kindOf .a }}`, `{"a":12345678901234567}`, `12345678901234567 12345678901234568 int64`},
		"floats":              {`{{ .a }} {{ kindOf .a }}`, `{"a":1.5}`, `1.5 float64`},
		"a missing key":       {`{{ .Cluster.none }}`, `{"Cluster":{}}`, `<no value>`},
		"no data":             {`x`, `{}`, `x`},
		"definitions":         {`{{ define "a" }}[{{ . }}]{{ end }}{{ range .l }}{{ template "a" . }}{{ end }}`, `{"l":[1,2]}`, `[1][2]`},
		"white space trimmed": {"a:\n{{- range .l }}\n- {{ . }}\n{{- else }}\nnone\n{{- end }}\n", `{"l":["x"]}`, "a:\n- x\n"},
		"else":                {"{{ with .a }}{{ . }}{{ else }}no{{ end }}", `{}`, "no"},
		"toYaml":              {"{{ .a | toYaml }}|", `{"a":{"c":[1,"x"],"b":true}}`, "b: true\nc:\n- 1\n- x|"},
		"fromYaml":            {"{{ (fromYaml .a).b }} {{ index (fromYaml \"[1, 2]\") 1 }}", `{"a":"b: c"}`, "c 2"},
		"integers of YAML":    {`{{ (fromYaml .a).b }} {{ kindOf (fromYaml .a).b }} {{ (fromYaml .a).c }}`, `{"a":"b: 12345678901234567\nc: 1.5"}`, "12345678901234567 int64 1.5"},
		"required":            {`{{ required "no zone" .zone }}`, `{"zone":"a"}`, "a"},
		"break":               {"{{ range .l }}{{ if eq . 2 }}{{ break }}{{ end }}{{ . }}{{ end }}", `{"l":[1,2,3]}`, "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := render(t, &templatev1.RenderRequest{
				Template: c.template,
				Inputs:   []*templatev1.Input{{Key: "k", Data: []byte(c.data)}},
			})
			if got.GetFailure() != nil || got.GetText() != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRenderFails(t *testing.T) {
	cases := map[string]struct {
		template, data, message string
		line                    uint32
		parse                   bool
	}{
		"parse":               {"a\n{{ if }}", `{}`, "missing value for if", 2, true},
		"unknown function":    {"{{ nope }}", `{}`, `function "nope" not defined`, 1, true},
		"no env":              {`{{ env "HOME" }}`, `{}`, `function "env" not defined`, 1, true},
		"no expandenv":        {`{{ expandenv "$HOME" }}`, `{}`, `function "expandenv" not defined`, 1, true},
		"no DNS":              {`{{ getHostByName "a" }}`, `{}`, `function "getHostByName" not defined`, 1, true},
		"execution":           {"a\n\n{{ .a.b.c }}", `{"a":"text"}`, "can't evaluate field b", 3, false},
		"fail":                {"a\n{{ fail \"give a name\" }}", `{}`, "give a name", 2, false},
		"a required value":    {"a\n{{ required \"no zone\" .zone }}", `{}`, "no zone", 2, false},
		"invalid YAML":        {`{{ fromYaml .a }}`, `{"a":"{"}`, "the text is not valid YAML", 1, false},
		"bad data":            {`x`, `[`, "not a JSON object", 0, false},
		"output limit":        {`{{ repeat 2000 "x" }}`, `{}`, "larger than 1000 bytes", 0, false},
		"loop without output": {`{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}`, `{}`, "took longer than", 1, false},
		"counting loop":       {`{{ range 1000000000000 }}{{ end }}`, `{}`, "took longer than", 1, false},
		"doubling":            {`{{ define "a" }}{{ template "b" }}{{ template "b" }}{{ end }}{{ define "b" }}{{ template "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`, `{}`, "took longer than|exceeded maximum template depth", 1, false},
		"a huge list":         {`{{ until 2000000000 }}`, `{}`, "more than", 1, false},
		"a huge text":         {`{{ repeat 2000000000 "xxxx" }}`, `{}`, "more than", 1, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got := render(t, &templatev1.RenderRequest{
				Template:       c.template,
				Inputs:         []*templatev1.Input{{Key: "k", Data: []byte(c.data)}},
				Timeout:        durationpb.New(time.Second),
				MaxOutputBytes: 1000,
			}).GetFailure()
			if got == nil {
				t.Fatal("it did not fail")
			}
			contains := func(part string) bool { return strings.Contains(got.GetMessage(), part) }
			if !slices.ContainsFunc(strings.Split(c.message, "|"), contains) || got.GetLine() != c.line || got.GetParse() != c.parse {
				t.Fatalf("got %v", got)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Fatalf("it took %s", took)
			}
		})
	}
}

func TestFailureOfOneInputDoesNotAffectOthers(t *testing.T) {
	response := Render(context.Background(), &templatev1.RenderRequest{
		Template: `{{ .name.first }}`,
		Inputs: []*templatev1.Input{
			{Key: "a", Data: []byte(`{"name":{"first":"x"}}`)},
			{Key: "b", Data: []byte(`{"name":"x"}`)},
			{Key: "c", Data: []byte(`{"name":{"first":"y"}}`)},
		},
	})
	outputs := response.GetOutputs()
	if outputs[0].GetText() != "x" || outputs[1].GetFailure() == nil || outputs[2].GetText() != "y" {
		t.Fatalf("got %v", outputs)
	}
}

func TestFailuresDoNotQuoteValues(t *testing.T) {
	const data = `{"Values":{"password":"{canary","pin":20262026},"Objects":[{"data":{"key":"{canary"}}],` +
		`"Content":"user: anna\npassword: canary\npin: 20262026\n"}`
	cases := map[string]string{
		`{{ fail .Values.password }}`:                                 "error calling fail: (redacted)",
		`{{ fail (printf "%v" .Values.pin) }}`:                        "error calling fail: (redacted)",
		`{{ fail (index .Objects 0).data.key }}`:                      "error calling fail: (redacted)",
		`{{ fail .Content }}`:                                         "error calling fail: (redacted)",
		`{{ fail (fromYaml .Content).password }}`:                     "error calling fail: (redacted)",
		`{{ (fromYaml .Content).pin | toString | fail }}`:             "error calling fail: (redacted)",
		`{{ .Values.password | substr 1 7 | fail }}`:                  "error calling fail: (redacted)",
		`{{ required .Values.password .none }}`:                       "error calling required: (redacted)",
		`{{ fromYaml .Values.password }}`:                             "the text is not valid YAML",
		`{{ .Values.password.field }}`:                                "can't evaluate field field in type interface {}",
		`{{ mustToDate "2006" .Values.password }}`:                    "error calling mustToDate: (redacted)",
		`{{ range .Values.password }}{{ end }}`:                       "at <.Values.password>: (redacted)",
		`{{ if .Values.password }}{{ fail "give a name" }}{{ end }}`:  "give a name",
		`{{ required "no zone" .Values.zone }}`:                       "no zone",
		`{{ .Values.password }}{{ range until 1000000000 }}{{ end }}`: "more than",
	}
	for template, want := range cases {
		got := render(t, &templatev1.RenderRequest{
			Template: template,
			Inputs:   []*templatev1.Input{{Key: "k", Data: []byte(data)}},
		}).GetFailure()
		message := got.GetMessage()
		if got == nil || strings.Contains(message, "canary") || strings.Contains(message, "2026") ||
			!strings.Contains(message, want) || got.GetLine() != 1 {
			t.Errorf("%s: got %v, want %q", template, got, want)
		}
	}
}
