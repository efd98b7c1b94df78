package withhold

import "testing"

func TestFrom(t *testing.T) {
	values := map[string]any{
		"login": map[string]any{"password": "canary-1"},
		"list":  []any{"canary-1-and-more", 7, nil, true},
		"key":   "BEGIN canary\nline canary\n",
		"tab":   "canary\ttab",
		"short": "no",
	}
	for message, want := range map[string]string{
		"execution error at (x.yaml:1:2): bad canary-1":    "execution error at (x.yaml:1:2): bad (a value)",
		"bad canary-1-and-more, nobody knows":              "bad (a value), nobody knows",
		"parsing \"BEGIN canary\\nline canary\\n\": wrong": "parsing \"(a value)\": wrong",
		"line canary cannot be read":                       "(a value) cannot be read",
		"parsing \"canary\\ttab\"":                         "parsing \"(a value)\"",
		"nothing of it":                                    "nothing of it",
	} {
		if got := From(message, Texts(values)); got != want {
			t.Errorf("%q: got %q, want %q", message, got, want)
		}
	}
}

func TestLiterals(t *testing.T) {
	texts := Literals("a: \"outside\"\nb: {{ printf \"%s\" `canary raw` | add \"canary-2\" }}\n{{ fail \"no zone\" }}c: {{ unclosed \"canary-3\"")
	got := From("at <canary-2>: canary raw, canary-3, outside, no zone", texts)
	if want := "at <(a value)>: (a value), (a value), outside, no zone"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
