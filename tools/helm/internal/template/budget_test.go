package template

import (
	"runtime"
	"strings"
	"testing"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
)

// doubled returns a template that executes a statement 30 times.
func doubled(first, statement string) string {
	return first + strings.Repeat(statement, 30)
}

func TestTemplatesThatGrowAreRefused(t *testing.T) {
	cases := map[string]string{
		"cat":                 doubled(`{{ $x := "xx" }}`, `{{ $x = cat $x $x }}`),
		"printf":              doubled(`{{ $x := "xx" }}`, `{{ $x = printf "%s%s" $x $x }}`),
		"print":               doubled(`{{ $x := "xx" }}`, `{{ $x = print $x $x }}`),
		"html":                doubled(`{{ $x := "&" }}`, `{{ $x = html $x $x }}`),
		"concat":              doubled(`{{ $x := list 1 2 }}`, `{{ $x = concat $x $x }}`),
		"join":                doubled(`{{ $x := "xx" }}`, `{{ $x = list $x $x | join "" }}`),
		"a shared list":       doubled(`{{ $x := list "x" }}`, `{{ $x = list $x $x }}`) + `{{ $x }}`,
		"a shared map":        doubled(`{{ $all := dict }}{{ $x := $all }}`, `{{ $y := dict }}{{ $_ := set $x "a" (list $y $y) }}{{ $x = $y }}`) + `{{ toJson $all }}`,
		"a map in itself":     `{{ $x := dict }}{{ $_ := set $x "x" $x }}{{ $x }}`,
		"a map in a text":     `{{ $x := dict }}{{ $_ := set $x "x" $x }}{{ toYaml $x }}`,
		"indentation":         `{{ indent 2000000000 "x" }}`,
		"separators":          `{{ until 1000000 | join (repeat 100000 "x") }}`,
		"replacements":        `{{ $x := repeat 100000 "x" }}{{ $x | replace "x" $x }}`,
		"expressions":         `{{ $x := repeat 100000 "x" }}{{ regexReplaceAll "x" $x $x }}`,
		"widths":              `{{ printf "` + strings.Repeat("%999999d", 100) + `" 1 }}`,
		"widths in arguments": `{{ printf "%*d%*d%*d%*d%*d%*d%*d%*d%*d" 999999 1 999999 1 999999 1 999999 1 999999 1 999999 1 999999 1 999999 1 999999 1 }}`,
		"random text":         `{{ randAlphaNum 2000000000 }}`,
		"many texts":          `{{ range until 1000 }}{{ $x := repeat 1000000 "x" }}{{ end }}`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := render(t, &templatev1.RenderRequest{
				Template: text,
				Inputs:   []*templatev1.Input{{Key: "k", Data: []byte(`{}`)}},
			}).GetFailure()
			runtime.ReadMemStats(&after)
			if got == nil || !strings.Contains(got.GetMessage(), " MiB") {
				t.Fatalf("got %v", got)
			}
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 512 {
				t.Errorf("it allocated %d MiB", allocated)
			}
		})
	}
}

func TestUsualTemplatesAreNotRefused(t *testing.T) {
	cases := map[string]struct{ template, want string }{
		"a list that is appended to": {`{{ $x := list }}{{ range until 1000 }}{{ $x = append $x (printf "user-%d" .) }}{{ end }}{{ len $x }}`, "1000"},
		"a text that is appended to": {`{{ $x := "" }}{{ range until 1000 }}{{ $x = printf "%s,%d" $x . }}{{ end }}{{ len $x }}`, "3890"},
		"a map that is filled":       {`{{ $x := dict }}{{ range until 1000 }}{{ $_ := set $x (toString .) "a value of usual length" }}{{ end }}{{ len $x }}`, "1000"},
		"a wide column":              {`{{ printf "%-10s|%5.2f" "x" 1.5 }}`, "x         | 1.50"},
		"a large regexp":             {`{{ regexReplaceAll "y" (repeat 200000 "x") (repeat 100 "z") | len }}`, "200000"},
		"nothing":                    {`{{ .none }}{{ dict | toJson }}{{ list | toJson }}`, "<no value>{}[]"},
		"a pipe into a declaration":  {`{{ $x := "a" | upper }}{{ $x }}{{ with $y := "b" | upper }}{{ $y }}{{ end }}`, "AB"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := render(t, &templatev1.RenderRequest{
				Template: c.template,
				Inputs:   []*templatev1.Input{{Key: "k", Data: []byte(`{}`)}},
			})
			if got.GetFailure() != nil || got.GetText() != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEveryInputHasItsOwnBudget(t *testing.T) {
	response := Render(t.Context(), &templatev1.RenderRequest{
		Template: `{{ range until 40 }}{{ $x := repeat 1000000 "x" }}{{ end }}{{ .a }}`,
		Inputs:   []*templatev1.Input{{Key: "a", Data: []byte(`{"a":1}`)}, {Key: "b", Data: []byte(`{"a":2}`)}},
	})
	for at, want := range []string{"1", "2"} {
		if got := response.GetOutputs()[at]; got.GetText() != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
